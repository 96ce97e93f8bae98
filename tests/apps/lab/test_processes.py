"""How many runs fit on the machine and in its container, and processes that die alone."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pellucid.apps.lab import processes
from pellucid.apps.lab.processes import THREADS, FreshProcesses, affordable


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 processors and 20 GB free, without limits."""
    monkeypatch.setattr(processes, "processors", lambda: 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=20e9))
    monkeypatch.setattr(processes, "CGROUP", tmp_path)
    return tmp_path


def test_processors_and_free_memory_limit_the_number_of_runs(container: Path) -> None:
    assert affordable(1.0) == 8
    assert affordable(7.0) == 2
    assert affordable(700.0) == 1


@pytest.mark.parametrize(
    ("folder", "limit", "used"),
    [("", "memory.max", "anon"), ("memory", "memory.limit_in_bytes", "total_rss")],
)
def test_a_containers_memory_limit_counts(
    container: Path, folder: str, limit: str, used: str
) -> None:
    (container / folder).mkdir(exist_ok=True)
    (container / folder / limit).write_text("9000000000\n")
    (container / folder / "memory.stat").write_text(f"file 7000000000\n{used} 4000000000\n")
    assert affordable(1.0) == 5
    (container / folder / limit).write_text("max\n")
    assert affordable(1.0) == 8


def die(code: int) -> None:
    os._exit(code)


def environment() -> list[str | None]:
    return [os.environ.get(name) for name in THREADS]


def test_a_process_that_dies_breaks_its_own_future_only() -> None:
    executor = FreshProcesses(2)
    first, second = executor.submit(die, 3), executor.submit(environment)
    assert second.result(timeout=60) == ["1"] * len(THREADS)
    with pytest.raises(RuntimeError, match="BrokenProcessPool"):
        first.result(timeout=60)


def die_once(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os._exit(3)
    return "done"


def test_a_call_whose_process_died_is_called_again(tmp_path: Path) -> None:
    assert FreshProcesses(1).submit(die_once, tmp_path / "mark").result(timeout=60) == "done"


def test_a_process_whose_parent_died_asks_itself_to_save_and_then_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a system without sessions too, as Windows; there os.kill would end it unsaved."""
    for name in THREADS:  # which it sets for good
        monkeypatch.setenv(name, "1")
    monkeypatch.delattr(os, "setsid", raising=False)
    monkeypatch.setattr(processes, "parent_process", lambda: SimpleNamespace(join=lambda: None))
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    asked: list[int] = []
    over = threading.Event()
    monkeypatch.setattr(signal, "raise_signal", asked.append)
    monkeypatch.setattr(os, "_exit", lambda code: over.set())
    processes._detach()
    assert over.wait(60)
    assert asked == [signal.SIGTERM]
