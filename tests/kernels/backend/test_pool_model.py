"""The pool's protocol in every order of its steps; and what each of its precautions is for."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.kernels.backend.pool_model import (
    CALLER,
    WAITS,
    WORKER,
    Line,
    Program,
    Run,
    Setting,
    WrongError,
    begin,
    forked,
    is_over,
    search,
    small,
    steps,
)
from tests.kernels.backend.pool_model import (
    SLEEPS as FUTEX,
)

from pellucid.kernels.backend import thread_pool, threads
from pellucid.kernels.backend.thread_pool import BUSY, INSIDE, NEXT, OPEN

SETTINGS = [
    Setting(1, calls=3, tasks=3),
    Setting(1, callers=2, calls=1),
    Setting(2, calls=3),
    Setting(3, calls=1),  # with two it takes half a minute; it was searched, and is right
]


def named(program: Program, name: str) -> int:
    return [line.name for line in program].index(name)


def moved(program: Program, name: str, before: str) -> Program:
    """A program with one line moved before another; jumps to where it was go to what follows."""
    at = named(program, name)
    rest = (*program[:at], *program[at + 1 :])
    to = named(rest, before)
    return (*rest[:to], program[at], *rest[to:])


def renamed(program: Program, **names: str) -> Program:
    """A program in which jumps to the values of `names` go to the lines named by its keys."""
    found = {old.replace("_", " "): new for old, new in names.items()}
    return tuple(replace(line, name=found.get(line.name, line.name)) for line in program)


def changed(program: Program, name: str, do: Callable[[Run], bool | None]) -> Program:
    """A program with another effect of one line."""
    return tuple(replace(line, do=do) if line.name == name else line for line in program)


def without(program: Program, name: str) -> Program:
    return changed(program, name, lambda run: None)


def named_lines(program: Program, **codes: str) -> Program:
    """Give names to lines that have none, by their code."""
    found = {code: name for name, code in codes.items()}
    return tuple(replace(line, name=found.get(line.code, line.name)) for line in program)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_every_order_of_steps_is_right(setting: Setting) -> None:
    states = search(small(setting))
    assert any(is_over(state, small(setting)) for state in states)
    assert len(states) > 500


def test_workers_help_and_sleep_and_are_woken_somewhere() -> None:
    """The search would be of little use if no worker ever did anything."""
    setting = small(Setting(2, calls=2))
    done: set[tuple[bool, str]] = set()
    for state in search(setting):
        done |= {(thread < 2, line.code) for thread, line, _ in steps(state, setting)}
    assert {line.code for line in WORKER if (True, line.code) not in done} == {""}
    lone = ("for task in range(tasks):", "failed += _call(code, data, task)", "")  # two callers do
    assert {line.code for line in CALLER if (False, line.code) not in done} == set(lone)


def test_a_forked_child_has_a_pool_of_its_own() -> None:
    """The child has the parent's memory and not its threads, whatever these were doing."""
    setting = small(Setting(1, callers=2, calls=1))
    alone, parents = small(Setting(1, calls=1)), search(setting)
    for reset in (True, False):
        found = [forked(state, setting, reset=reset) for state in parents]
        children = [child for child in found if child is not None]
        assert children
        if reset:
            search(alone, children)
        else:  # a worker that is gone may have been inside
            with pytest.raises(WrongError, match="a call never returns"):
                search(alone, children)


def test_the_model_is_of_the_lines_of_the_code() -> None:
    sources = inspect.getsource(thread_pool) + inspect.getsource(threads)
    for line in (*CALLER, *WORKER):
        assert line.code in sources, f"{line.code}: the code has changed; change the model too"
    assert len(re.findall(r"_(?:set|add|take|get)\(pool, ", sources)) == 27, "change the model"


def _next_read(run: Run) -> None:
    run.own["task"] = run.get(NEXT)


def _next_written(run: Run) -> None:
    run.set(NEXT, run.own["task"] + 1)
    if run.own["task"] >= run.own["tasks"]:
        run.own.update(code=None, data=None, tasks=None, task=None)
        run.to = "taken"


def torn(program: Program) -> Program:
    """Take a task in two steps."""
    at = named(program, "next task")
    pair = (replace(program[at], do=_next_read), Line("", _next_written))
    return (*program[:at], *pair, *program[at + 1 :])


def _enter_first(run: Run) -> None:
    run.to = "enter" if run.get(OPEN) == run.own["job"] else "poll"


def _entered(run: Run) -> None:
    run.add(INSIDE, 1)
    run.own["last"], run.to = run.own["job"], "take tasks"


FLAG = "self._asleep[i] = False"
NEXT_0, FAILED_0 = "_set(pool, NEXT, 0)", "_set(pool, FAILED, 0)"
LATE = named_lines(CALLER, next_0=NEXT_0, failed_0=FAILED_0, flag=FLAG)


def _put_and_flag(run: Run) -> None:
    run.wakers[run.own["i"]] += 1


def _flag_and_go(run: Run) -> None:
    run.asleep[run.own["i"]] = False
    run.to = "wake"


def _asleep_late(run: Run) -> None:
    run.asleep[run.thread] = True
    run.to = "poll"


def _got(run: Run) -> bool:
    waits = not run.wakers[run.thread]
    run.wakers[run.thread] -= not waits
    return waits


def _not_taken(run: Run) -> None:
    run.set(BUSY, 0)
    begin(run)


SLEEPS = {WAITS: "self._asleep[i] = True", "self._asleep[i] = True": WAITS}
LATE_SLEEPER = tuple(
    replace(line, code=SLEEPS.get(line.code, line.code)) for line in
    changed(changed(WORKER, "sleep", _got), "get", _asleep_late)
)  # fmt: skip


def _to_waited(run: Run) -> None:
    run.to = "waited"


def _sleep_anyway(run: Run) -> None:
    run.own["inside"] = None
    run.set(FUTEX, 1)


def _to_poll(run: Run) -> None:
    run.to = "poll"


MUTANTS: dict[str, tuple[Setting, Program, Program, str]] = {
    "a worker does not look again after it has entered": (
        Setting(1), CALLER,
        changed(WORKER, "recheck", lambda run: run.own.update(last=run.own["job"])),
        "after its call had returned|twice",
    ),
    "a worker looks before it enters": (
        Setting(1), CALLER,
        changed(
            changed(moved(WORKER, "recheck", "enter"), "recheck", _enter_first), "enter", _entered
        ),
        "after its call had returned|twice",
    ),
    "the caller does not wait for the workers": (
        Setting(1), changed(CALLER, "wait", _to_waited), WORKER, "before its tasks had ended",
    ),
    "the caller waits before it closes the job": (
        Setting(1),
        renamed(moved(CALLER, "taken", "failed"), wait="taken", taken="close"),
        WORKER, "after its call had returned|before its tasks had ended|twice",
    ),
    "the job is opened before the first task is set": (
        Setting(1), moved(LATE, "open", "next_0"), WORKER, "twice|returned before|never returns",
    ),
    "failures are forgotten after the job is opened": (
        Setting(1), moved(LATE, "open", "failed_0"), WORKER, "without the failure",
    ),
    "failures are read before the workers are out": (
        Setting(1),
        renamed(moved(CALLER, "failed", "wait"), failed="failed"),
        WORKER, "without the failure",
    ),
    "the pool is free before the workers are out": (
        Setting(1, callers=2, calls=1), moved(CALLER, "not busy", "wait"), WORKER,
        "twice|returned|another call|without",
    ),
    "the pool is used by two callers": (
        Setting(1, callers=2, calls=1),
        changed(CALLER, "run_tasks", _not_taken), WORKER, "twice|returned|another call|without",
    ),
    "a task is taken in two steps": (Setting(1), torn(CALLER), torn(WORKER), "twice"),
    "the waker comes before the worker is marked awake": (
        Setting(1),
        changed(
            tuple(replace(x, do=_put_and_flag) if x.code == FLAG else x for x in CALLER),
            "put", _flag_and_go,
        ),
        WORKER, "sleeps for ever",
    ),
    "a worker marks itself asleep after it slept": (
        Setting(1), CALLER, LATE_SLEEPER, "sleeps for ever",
    ),
    "nobody wakes the caller": (
        Setting(1), CALLER, changed(WORKER, "waiting", _to_poll), "never returns",
    ),
    "the caller sleeps though workers have left since it looked": (
        Setting(1), changed(CALLER, "futex", _sleep_anyway), WORKER, "never returns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_precaution_something_goes_wrong(name: str) -> None:
    setting, caller, worker, expected = MUTANTS[name]
    with pytest.raises(WrongError, match=expected):
        search(small(setting, caller=caller, worker=worker))
