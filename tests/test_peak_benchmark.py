"""benchmarks/peak.py: the rate of multiply-adds alone."""

from __future__ import annotations

import itertools

import pytest
from benchmarks import peak
from tests.kernels.compare import PRODUCTS

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.matmul import Products


@pytest.mark.parametrize("products", PRODUCTS)
def test_every_multiply_add_is_counted(products: Products, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "STEPS", 1_000)
    clock = itertools.count()  # compiling, in the first run, looks at it too
    monkeypatch.setattr(peak.time, "perf_counter", lambda: float(next(clock)))
    each = 2 * products.numbers * products.rows * peak.WIDTH
    assert peak.multiply_add_rate(products) == each * 1_000 * threads.count()
