"""How many runs this machine, or this process's share of it, has processors and memory for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pellucid.core.machine import processors

ROOT = Path("/")


def affordable(gigabytes: float, root: Path = ROOT) -> int:
    """Return how many runs of this size there are processors and free memory for, at least 1.

    A control group's limits (a container's, say) count as the machine's own do. root: where `proc`
    and `sys` are.
    """
    limits = list(_groups(root))
    quotas = [int(quota) for group in limits if (quota := _quota(group)) is not None]
    frees = [free for group in limits if (free := _free_in(group)) is not None]
    free = _free_memory(root)
    by_memory = min([free, *frees]) / (gigabytes * 1e9) if free is not None else 1
    return max(1, min(processors(), int(by_memory), *quotas))


def _free_memory(root: Path) -> float | None:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return float(line.split()[1]) * 1024
    return None  # not Linux: how much is free is not known


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of all above them."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        number, kinds, name = line.split(":", 2)
        # Version 2 has one tree for all; version 1 has one a kind, and writes its kinds.
        tops = [""] if number == "0" else [k for k in kinds.split(",") if k in ("memory", "cpu")]
        for top in tops:
            base = root / "sys/fs/cgroup" / top
            parts = Path(name.lstrip("/")).parts
            for depth in range(len(parts) + 1):
                yield base.joinpath(*parts[:depth])


def _free_in(group: Path) -> float | None:
    """Return the bytes that a group may still take, or None where it has no limit."""
    for limit, usage, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, used = _number(group / limit), _number(group / usage)
        if most is not None and used is not None:
            # Files that were read count as used until somebody needs the room.
            stat = dict(line.split() for line in (_read(group / "memory.stat") or "").splitlines())
            return max(0.0, most - used + float(stat.get(cache, 0)))
    return None


def _quota(group: Path) -> float | None:
    """Return how many processors' time a group may take, or None where it has no limit."""
    words = (_read(group / "cpu.max") or "max").split()
    if words[0] != "max":
        return float(words[0]) / float(words[1])
    quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    return quota / period if quota is not None and quota > 0 and period else None


def _number(path: Path) -> float | None:
    text = (_read(path) or "max").strip()
    return None if text == "max" else float(text)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return None
