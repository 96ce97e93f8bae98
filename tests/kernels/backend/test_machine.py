"""The processors that this process may use, wherever they are counted."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

from pellucid.core.settings import changes
from pellucid.kernels.backend import machine, threads
from pellucid.kernels.backend.machine import environment, processor, processors


@pytest.fixture
def three_of_seven(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was given three of the machine's seven processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)


@pytest.mark.usefixtures("three_of_seven")
def test_those_of_the_process_count_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PELLUCID_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert processors() == 3
    assert threads.available() == 3


@pytest.mark.usefixtures("three_of_seven")
def test_all_count_where_a_process_cannot_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processors() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert processors() == 1


def test_a_processor_that_says_no_name_is_called_by_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")

    def read(self: Path, encoding: str) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", read)
    assert processor() == "riscv64"
    monkeypatch.setattr(Path, "read_text", lambda self, encoding: "flags: a\nmodel name : X: 5\n")
    assert processor() == "X: 5"


def test_the_thread_count_is_seen() -> None:
    with threadpool_limits(1, user_api="blas"):
        one = environment()
    assert one["blas threads"] == "1"
    assert changes(one, environment() | {"blas threads": "1"}) == []
    assert changes(one, one | {"blas threads": "3"}) == ["blas threads: 1 -> 3"]


def test_switching_the_kernels_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PELLUCID_KERNELS", raising=False)
    on = environment()
    monkeypatch.setenv("PELLUCID_KERNELS", "off")
    assert changes(on, environment()) == ["kernels: on -> off"]


@pytest.mark.usefixtures("three_of_seven")
@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 3),
        ({"cpu.max": "800000 100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.max": "something else\n"}, 3),
        ({}, 3),
    ],
)
def test_a_container_has_no_more_than_its_quota(
    files: dict[str, str], wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert processors() == wanted
