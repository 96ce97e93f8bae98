"""The most multiply-adds that this processor can do: the bound of everything else."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import variant
from pellucid.kernels.backend.matmul import FLOAT32, Products
from pellucid.kernels.backend.simd import WIDTH, address_of
from pellucid.kernels.backend.tile import ROWS

STEPS = 1 << 22


@cache
def _multiplying(products: Products) -> Any:
    product = products.product

    def _multiply_adds(task, tasks, numbers, steps):
        """One block of `product` whose steps stay where they are, in the nearest cache."""
        block = ROWS * WIDTH
        a = address_of(numbers, task * 3 * block)
        product(ROWS, WIDTH, steps, a, 1, 0, a + 4 * block, 0, a + 8 * block, WIDTH, 0, 0)

    return threads.parallel("f4[:,:,::1],i8")(variant(_multiply_adds, products.name))


def multiply_add_rate(products: Products = FLOAT32) -> float:
    """Return the operations a second of multiply-adds alone, two each; the best of three runs."""
    tasks, best, kernel = threads.count(), 0.0, _multiplying(products)
    numbers = np.zeros((tasks, 3 * ROWS, WIDTH), np.float32)
    for _ in range(4):  # the first wakes the threads
        began = time.perf_counter()
        kernel(tasks, numbers, STEPS)
        done = 2.0 * products.numbers * tasks * ROWS * WIDTH * STEPS
        best = max(best, done / (time.perf_counter() - began))
    return best
