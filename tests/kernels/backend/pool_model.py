"""The thread pool's protocol as a small model, and a search through everything that can happen.

A program is a list of lines, each with the text of the line of `thread_pool.py` or `threads.py`
that it stands for (a test compares them) and what it does. A line reads or writes shared memory at
most once, and lines of the threads come in any order: every access in the code is sequentially
consistent, so that this is all that can happen. A line may be waited at for ever, but not by all.

The state is a tuple: the pool's fields, whether each worker is asleep and what is in its queue,
which tasks of the current calls were begun and ended, and of each thread its line and its locals.
What a worker's patience is is left open: it may fall asleep whenever it has nothing to do; and a
caller that waits may go to sleep whenever it waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from pellucid.kernels.backend.thread_pool import (
    BUSY,
    CODE,
    DATA,
    FAILED,
    INSIDE,
    JOBS,
    NEXT,
    OPEN,
    TASKS,
    WAITING,
)

WAITS, WAKES = "self._wakers[i].get()", "self._wakers[i].put(None)"
SLEEPS = JOBS + 8
"""Of the system, not of the pool: 1 while the caller sleeps at the futex."""
FIELDS = (BUSY, OPEN, INSIDE, WAITING, NEXT, FAILED, CODE, DATA, TASKS, JOBS, SLEEPS)
RETURNED = 0


class WrongError(Exception):
    """Something happened that must not."""


class Call(NamedTuple):
    """A call under way: its number (`RETURNED`: none), and its tasks, as sets of bits."""

    number: int = RETURNED
    begun: int = 0
    ended: int = 0


class State(NamedTuple):
    """All there is at one moment."""

    pool: tuple[int, ...]
    asleep: tuple[bool, ...]
    wakers: tuple[int, ...]
    calls: tuple[Call, ...]
    threads: tuple[tuple[Any, ...], ...]


class Run:
    """One step of one thread: the state, where it can be written to."""

    def __init__(self, state: State, thread: int, setting: Setting) -> None:
        self.pool, self.asleep = list(state.pool), list(state.asleep)
        self.wakers, self.calls = list(state.wakers), list(state.calls)
        self.own = dict(zip(LOCALS, state.threads[thread], strict=True))
        self.thread, self.setting = thread, setting
        self.to: str | None = None

    def get(self, field: int) -> int:
        """Read a field of the pool."""
        return self.pool[field // 8]

    def set(self, field: int, value: int) -> None:
        """Write a field."""
        self.pool[field // 8] = value

    def add(self, field: int, value: int) -> int:
        """Add to a field; return its value before."""
        self.pool[field // 8] += value
        return self.pool[field // 8] - value


LOCALS = ("line", "i", "calls", "job", "last", "code", "data", "tasks", "task", "failed", "inside")
"""What a thread has of its own. A variable is None where it is not read again: so there are fewer
states."""


@dataclass(frozen=True, eq=False)
class Line:
    """One line: its text, what it does (True: stay here), its name as a target of jumps.

    `may`: where the thread may go instead of doing it.
    """

    code: str
    do: Callable[[Run], bool | None]
    name: str = ""
    may: str = ""


Program = tuple[Line, ...]


@dataclass(frozen=True)
class Setting:
    """How many workers, the calls of each caller, and the tasks of each call.

    Task 0 of every second call fails, as if without memory.
    """

    workers: int
    callers: int = 1
    calls: int = 2
    tasks: int = 2
    caller: Program = ()
    worker: Program = ()


# The steps


def _next_asleep(run: Run) -> None:
    i = run.own["i"] = 0 if run.own["i"] is None else run.own["i"] + 1
    if i == len(run.asleep):
        run.own["i"], run.to = None, "run_tasks"
    elif not run.asleep[i]:
        run.to = "wake"


def _not_asleep(run: Run) -> None:
    run.asleep[run.own["i"]] = False


def _put(run: Run) -> None:
    run.wakers[run.own["i"]] += 1
    run.to = "wake"


def begin(run: Run) -> None:
    """Begin a call, and take the pool if it is free."""
    caller = run.thread - len(run.asleep)
    run.own["calls"] -= 1
    number = 1 + caller * run.setting.calls + run.own["calls"]
    run.calls[caller] = Call(number)
    run.own["code"] = run.own["data"] = number
    if run.get(BUSY):
        run.own["task"], run.own["failed"], run.to = 0, 0, "alone"
    else:
        run.set(BUSY, 1)


def _set(field: int, value: int | str) -> Callable[[Run], None]:
    def do(run: Run) -> None:
        run.set(field, run.own[value] if isinstance(value, str) else value)

    return do


def _set_tasks(run: Run) -> None:
    run.set(TASKS, run.setting.tasks)


def _open(run: Run) -> None:
    # Two accesses, but nobody else touches JOBS while this thread has the pool.
    run.set(OPEN, run.add(JOBS, 1) + 1)


def _read(local: str, field: int) -> Callable[[Run], None]:
    def do(run: Run) -> None:
        run.own[local] = run.get(field)

    return do


def _next_task(run: Run) -> None:
    run.own["task"] = run.add(NEXT, 1)
    if run.own["task"] >= run.own["tasks"]:
        run.own.update(code=None, data=None, tasks=None, task=None)
        run.to = "taken"


def _call(run: Run) -> None:
    """Begin a task: of a call that has not returned, and for the first time."""
    number, task = run.own["code"], run.own["task"]
    if run.own["data"] != number:
        raise WrongError("a function was called with the arguments of another call")
    for i, call in enumerate(run.calls):
        if number == call.number != RETURNED:
            if call.begun & 1 << task:
                raise WrongError(f"task {task} was run twice")
            run.calls[i] = call._replace(begun=call.begun | 1 << task)
            return
    raise WrongError("a task was begun after its call had returned")


def _end(run: Run) -> bool:
    """End the task; return whether it failed."""
    number, task = run.own["code"], run.own["task"]
    for i, call in enumerate(run.calls):
        if number == call.number:
            run.calls[i] = call._replace(ended=call.ended | 1 << task)
            return task == 0 and number % 2 == 0
    raise WrongError("a task ended after its call had returned")


def _called(run: Run) -> None:
    if not _end(run):
        run.to = "next task"


def _task_failed(run: Run) -> None:
    run.add(FAILED, 1)
    run.to = "next task"


def _wait_for_workers(run: Run) -> bool:
    run.to = "waited"
    return run.get(INSIDE) > 0


def _look_again(run: Run) -> None:
    run.own["inside"] = run.get(INSIDE)
    if not run.own["inside"]:
        run.own["inside"], run.to = None, "again"


def _futex_sleep(run: Run) -> None:
    """Sleep only if the field is still what was read; the system compares and sleeps at once."""
    if run.get(INSIDE) != run.own["inside"]:
        run.to = "again"
    else:
        run.set(SLEEPS, 1)
    run.own["inside"] = None


def _asleep_at_the_futex(run: Run) -> bool:
    return run.get(SLEEPS) == 1


def _alone(run: Run) -> None:
    _call(run)


def _alone_called(run: Run) -> None:
    run.own["failed"] += _end(run)
    run.own["task"] += 1
    run.to = "alone"
    if run.own["task"] == run.setting.tasks:
        run.own.update(task=None, code=None, data=None)
        run.to = "return"


def _return(run: Run) -> None:
    """Return from a call: all its tasks have ended, and it knows if one failed."""
    caller = run.thread - len(run.asleep)
    call = run.calls[caller]
    if call.ended != (1 << run.setting.tasks) - 1:
        raise WrongError("a call returned before its tasks had ended")
    if run.own["failed"] != (call.number % 2 == 0):
        raise WrongError("a call returned without the failure of its task")
    run.calls[caller] = Call()
    run.own["failed"] = None
    run.to = "wake" if run.own["calls"] else "over"


def _poll(run: Run) -> bool:
    run.own["job"] = run.get(OPEN)
    if run.own["job"] in (0, run.own["last"]):
        run.own["job"] = None
        return True
    return False


def _enter(run: Run) -> None:
    run.add(INSIDE, 1)


def _if_still_open(run: Run) -> None:
    if run.get(OPEN) == run.own["job"]:
        run.own["last"] = run.own["job"]
        run.to = "take tasks"
    else:
        run.to = "taken"


def _leave(run: Run) -> None:
    run.own["job"] = None
    if run.add(INSIDE, -1) != 1:
        run.to = "poll"


def _if_waiting(run: Run) -> None:
    if not run.get(WAITING):
        run.to = "poll"


def _futex_wake(run: Run) -> None:
    run.set(SLEEPS, 0)
    run.to = "poll"


def _sleep(run: Run) -> None:
    run.asleep[run.thread] = True


def _wait_for_waker(run: Run) -> bool:
    if not run.wakers[run.thread]:
        return True
    run.wakers[run.thread] -= 1
    run.to = "poll"
    return False


TAKE_TASKS: Program = (
    Line("code, data, tasks = _get(pool, CODE)", _read("code", CODE), "take tasks"),
    Line("_get(pool, DATA)", _read("data", DATA)),
    Line("_get(pool, TASKS)", _read("tasks", TASKS)),
    Line("task = _add(pool, NEXT, 1)", _next_task, "next task"),
    Line("if _call(code, data, task):", _call),
    Line("_call(code, data, task)", _called, "called"),
    Line("_add(pool, FAILED, 1)", _task_failed),
)
CALLER: Program = (
    Line("for i, asleep in enumerate(self._asleep):", _next_asleep, "wake"),
    Line("self._asleep[i] = False", _not_asleep),
    Line("self._wakers[i].put(None)", _put, "put"),
    Line("if tasks > 1 and pool != 0 and _take(pool, BUSY):", begin, "run_tasks"),
    Line("_set(pool, CODE, code)", _set(CODE, "code")),
    Line("_set(pool, DATA, data)", _set(DATA, "data")),
    Line("_set(pool, TASKS, tasks)", _set_tasks),
    Line("_set(pool, NEXT, 0)", _set(NEXT, 0)),
    Line("_set(pool, FAILED, 0)", _set(FAILED, 0)),
    Line("_set(pool, OPEN, _add(pool, JOBS, 1) + 1)", _open, "open"),
    *TAKE_TASKS,
    Line("_set(pool, OPEN, 0)", _set(OPEN, 0), "taken"),
    Line("inside = _get(pool, INSIDE)", _wait_for_workers, "wait", may="will sleep"),
    Line("_set(pool, WAITING, 1)", _set(WAITING, 1), "will sleep"),
    Line("inside = _get(pool, INSIDE)", _look_again, "look again"),
    Line("_futex(pool, INSIDE, _SLEEP, inside)", _futex_sleep, "futex"),
    Line("_futex(pool, INSIDE, _SLEEP, inside)", _asleep_at_the_futex),
    Line("inside = _get(pool, INSIDE)", _wait_for_workers, "again", may="will sleep"),
    Line("_set(pool, WAITING, 0)", _set(WAITING, 0), "waited"),
    Line("failed = _get(pool, FAILED)", _read("failed", FAILED), "failed"),
    Line("_set(pool, BUSY, 0)", _set(BUSY, 0), "not busy"),
    Line("if failed:", _return, "return"),
    Line("for task in range(tasks):", _alone, "alone"),
    Line("failed += _call(code, data, task)", _alone_called),
    Line("", lambda run: True, "over"),
)
WORKER: Program = (
    Line("job = _get(pool, OPEN)", _poll, "poll", may="sleep"),
    Line("_add(pool, INSIDE, 1)", _enter, "enter"),
    Line("if _get(pool, OPEN) == job:", _if_still_open, "recheck"),
    *TAKE_TASKS,
    Line("if _add(pool, INSIDE, -1) == 1 and _get(pool, WAITING):", _leave, "taken"),
    Line("_get(pool, WAITING)", _if_waiting, "waiting"),
    Line("_futex(pool, INSIDE, _WAKE, 1)", _futex_wake, "wake the caller"),
    Line("self._asleep[i] = True", _sleep, "sleep"),
    Line("self._wakers[i].get()", _wait_for_waker, "get"),
    Line("", lambda run: True, "gone"),
)


def first_state(setting: Setting) -> State:
    """Return the state in which the pool was just made, and every caller is about to call."""
    nothing = dict.fromkeys(LOCALS)
    worker = {**nothing, "line": 0, "last": 0}
    caller = {**nothing, "line": 0, "calls": setting.calls}
    threads = [worker] * setting.workers + [caller] * setting.callers
    return State(
        (0,) * len(FIELDS),
        (False,) * setting.workers,
        (0,) * setting.workers,
        (Call(),) * setting.callers,
        tuple(tuple(thread.values()) for thread in threads),
    )


def steps(state: State, setting: Setting) -> Iterator[tuple[int, Line, State]]:
    """Yield each thread that can do something, the line that it does, and the state after it.

    Raises `WrongError` when it must not happen.
    """
    for thread, own in enumerate(state.threads):
        program = setting.worker if thread < setting.workers else setting.caller
        line = program[own[0]]
        if line.may:
            there = _target(program, line.may)
            threads = (*state.threads[:thread], (there, *own[1:]), *state.threads[thread + 1 :])
            yield thread, program[there], state._replace(threads=threads)
        run = Run(state, thread, setting)
        if line.do(run):
            continue  # it waits: nothing has changed
        run.own["line"] = own[0] + 1 if run.to is None else _target(program, run.to)
        threads = (*state.threads[:thread], tuple(run.own.values()), *state.threads[thread + 1 :])
        yield (
            thread,
            line,
            State(*map(tuple, (run.pool, run.asleep, run.wakers, run.calls)), threads),
        )


@cache
def _targets(program: Program) -> dict[str, int]:
    return {line.name: i for i, line in enumerate(program)}


def _target(program: Program, name: str) -> int:
    return _targets(program)[name]


@cache
def _line_of(program: Program, code: str) -> int:
    return [line.code for line in program].index(code)


def is_over(state: State, setting: Setting) -> bool:
    """Return whether every caller has made all its calls."""
    last = len(setting.caller) - 1
    return all(own[0] == last for own in state.threads[setting.workers :])


def _check(state: State, setting: Setting) -> None:
    """Raise `WrongError` where a worker sleeps and nobody would ever wake it."""
    get, put = _line_of(setting.worker, WAITS), _line_of(setting.caller, WAKES)
    for i in range(setting.workers):
        if state.threads[i][0] == get and not state.asleep[i] and not state.wakers[i]:
            waking = [own[0] == put and own[1] == i for own in state.threads[setting.workers :]]
            if not any(waking):
                raise WrongError("a worker sleeps for ever")


def search(setting: Setting, begin: Sequence[State] = ()) -> set[State]:
    """Return all states that can be reached. Raises `WrongError` when something is wrong.

    Wrong is, besides what the lines raise: a worker that nobody will wake, and a state from which
    the end of all calls cannot be reached any more, however the threads go on.
    """
    first = list(begin) or [first_state(setting)]
    before: dict[State, list[State]] = {state: [] for state in first}
    waiting = deque(first)
    while waiting:
        state = waiting.popleft()
        _check(state, setting)
        for _, _, after in steps(state, setting):
            if after not in before:
                before[after] = []
                waiting.append(after)
            before[after].append(state)
    ends = [state for state in before if is_over(state, setting)]
    ending, open_ = set(ends), deque(ends)
    while open_:
        for state in before[open_.popleft()]:
            if state not in ending:
                ending.add(state)
                open_.append(state)
    if len(ending) < len(before):
        raise WrongError("a call never returns")
    return ending


def forked(state: State, setting: Setting, *, reset: bool = True) -> State | None:
    """Return the child's state if caller 0 forks now, between two of its calls; else None.

    The child has that thread alone. `reset`: it starts with a new pool, as `_reset_after_fork`
    makes it; otherwise it has the parent's, without the workers.
    """
    caller = state.threads[setting.workers]
    if caller[0] != 0 or caller[1] is not None:
        return None
    if reset:
        return first_state(setting)._replace(
            threads=(*first_state(setting).threads[: setting.workers], caller), calls=(Call(),)
        )
    gone = [(_target(setting.worker, "gone"), *own[1:]) for own in state.threads[: setting.workers]]
    return state._replace(threads=(*gone, caller), calls=(Call(),))


def small(setting: Setting, **changes: Any) -> Setting:
    """Return a setting with the programs of the code, or changed ones."""
    return replace(setting, **{"caller": CALLER, "worker": WORKER, **changes})
