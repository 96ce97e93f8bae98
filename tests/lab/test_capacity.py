"""How many runs fit: what the machine has, and what a control group leaves of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pellucid.lab.capacity import affordable

ENOUGH = 8


@pytest.fixture(autouse=True)
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(ENOUGH)), raising=False)


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": "MemAvailable: 20000000 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_machine_alone(tmp_path: Path) -> None:
    assert affordable(1.0, put(tmp_path, {})) == ENOUGH
    assert affordable(7.0, tmp_path) == 2
    assert affordable(700.0, tmp_path) == 1
    assert affordable(1.0, tmp_path / "elsewhere") == 1


@pytest.mark.parametrize("name", ["/", "/a", "/a/b"])
def test_version_2(tmp_path: Path, name: str) -> None:
    group = f"sys/fs/cgroup{name}".rstrip("/")
    put(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            f"{group}/memory.max": "9000000000\n",
            f"{group}/memory.current": "5000000000\n",
            f"{group}/memory.stat": "anon 1\ninactive_file 1000000000\n",
            f"{group}/cpu.max": "max 100000\n",
        },
    )
    assert affordable(1.0, tmp_path) == 5
    put(tmp_path, {f"{group}/cpu.max": "350000 100000\n"})
    assert affordable(1.0, tmp_path) == 3
    put(tmp_path, {f"{group}/cpu.max": "50000 100000\n", f"{group}/memory.max": "max\n"})
    assert affordable(1.0, tmp_path) == 1


def test_version_1(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n1:cpu,cpuacct:/\n7:name=systemd:/\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "6000000000\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1000000000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert affordable(1.0, tmp_path) == 5
    put(tmp_path, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n"})
    assert affordable(1.0, tmp_path) == 2
