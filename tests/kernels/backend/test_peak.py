"""The rate of multiply-adds alone."""

from __future__ import annotations

import pytest

from pellucid.kernels.backend import peak, threads


def test_every_multiply_add_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "STEPS", 1_000)
    clock = iter(range(100))
    monkeypatch.setattr(peak.time, "perf_counter", lambda: float(next(clock)))
    assert peak.multiply_add_rate() == 2 * 1_000 * threads.count() * peak.ROWS * peak.WIDTH
