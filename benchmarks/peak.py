"""Measure the rate of multiply-adds of this processor, which bounds everything else."""

import time
from functools import cache
from typing import Any

from pellucid.kernels.backend import threads
from pellucid.kernels.backend.compile import variant
from pellucid.kernels.backend.matmul import FLOAT32, Products, aligned
from pellucid.kernels.backend.simd import WIDTH, address_of, nowhere

STEPS = 1 << 22


@cache
def _multiplying(products: Products) -> Any:
    product, rows = products.product, products.rows

    def _multiply_adds(task, tasks, numbers, steps):
        """One block of `product` whose steps stay where they are, in the nearest cache."""
        block = rows * WIDTH
        a = address_of(numbers, task * 3 * block)
        product(rows, WIDTH, steps, a, 1, 0, a + 4 * block, 0, a + 8 * block, WIDTH, nowhere(), 0)

    return threads.parallel("f4[:,:,::1],i8")(variant(_multiply_adds, products.name))


def multiply_add_rate(products: Products = FLOAT32) -> float:
    """Return the operations per second of multiply-adds alone, the best of four runs.

    A multiply-add is two operations.
    """
    tasks, best, kernel = threads.count(), 0.0, _multiplying(products)
    numbers = aligned(tasks, 3 * products.rows, WIDTH)
    numbers[:] = 0.0
    for _ in range(4):  # the first wakes the threads
        began = time.perf_counter()
        kernel(tasks, numbers, STEPS)
        done = 2.0 * products.numbers * tasks * products.rows * WIDTH * STEPS
        best = max(best, done / (time.perf_counter() - began))
    return best
