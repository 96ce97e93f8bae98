"""Large matrix products C = A B, blocked for the caches as in BLAS, on the small product of `tile`.

B is copied once into panels, WIDTH columns wide and k long, so that the inner loop reads memory
sequentially, and a piece of DEPTH rows stays in the first-level cache. HEIGHT rows of A stay in the
second-level cache while they are multiplied by all panels. (Goto & van de Geijn 2008, without its
last level, since k is mostly short here.) The pieces of a longer k are added to C one after
another, those of a k above 4,096 in float32 with compensated summation (`tile.add_product`). A
block of A that is not contiguous along its rows (a transposed array) is copied too, if it is read
in steps of FAR numbers or more, which use few sets of a cache.

Why not NumPy's BLAS? Its own threads keep a processor busy for a while after every product, when
other kernels need it. It chooses AVX2 code on processors with AVX-512 that are newer than it. It
cannot add to C. And its last bits change with the number of rows, while here the terms of every
element are added in one order, independent of other rows.
Measured on one thread, 3200 × 256 × 256: 240 GFLOP/s with AVX-512 (NumPy's OpenBLAS 0.3.31 114, or
230 when the processor is set by hand), 122 with AVX2 (OpenBLAS 114).
"""

import math
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from pellucid.kernels import precision
from pellucid.kernels.backend import amx, bfloat16, threads
from pellucid.kernels.backend.compile import empty, inner, variant
from pellucid.kernels.backend.simd import (
    LANES,
    WIDTH,
    address_of,
    get,
    load,
    nowhere,
    put,
    splat,
    store,
    transpose,
)
from pellucid.kernels.backend.slices import address
from pellucid.kernels.backend.tile import ROWS, add_product, product

DEPTH, HEIGHT, FAR = 256, 96, 256
_LONG = 16 * DEPTH  # k of which C's additions keep what they round away
_WORK = 1 << 19  # multiply-adds worth a separate task
_COPIED = 1 << 12  # numbers copied, likewise
_LINE = 16  # floats in a line of the cache

Array = np.ndarray
_f = np.float32
NOTHING = np.empty(0, np.float32)


class Products(NamedTuple):
    """The functions that multiply matrices in one precision.

    They are for float32, or for bfloat16 with or without AMX (`amx`).
    """

    name: str
    numbers: int
    """How many numbers of k a place of a panel holds."""
    multiple: int
    """The length of a panel along k is a multiple of this; the rest is filled with zeros."""
    rows: int
    """How many rows of C stay in registers."""
    pack: Any
    """Inside a kernel: do a task of `panels`."""
    product: Any
    """Inside a kernel: do a small product, as `tile.product` or `amx.product`."""
    multiply_rows: Any
    """Inside a kernel: do some rows of `multiply`."""

    def panels(self, b: Array) -> Array:
        """Pack B (k, n) into panels (⌈n / WIDTH⌉, k · WIDTH), padded with zero columns.

        In bfloat16 each place holds two numbers of k, so that panels are about half as long.
        """
        packed = self.empty_panels(*b.shape)
        _packing(self)(copying_tasks(packed), b, packed)
        return packed

    def empty_panels(self, k: int, n: int) -> Array:
        """Allocate the panels for a matrix of shape (k, n)."""
        panels, pieces = -(-n // WIDTH), -(-k // (self.numbers * self.multiple))
        size = pieces * self.multiple * WIDTH
        return np.empty((panels, size), np.float32) if self.multiple == 1 else aligned(panels, size)

    def multiply(
        self,
        a: Array,
        b: Array,
        c: Array,
        bias: Array | None = None,
        add: bool = False,
        sums: Array | None = None,
    ) -> Array:
        """Compute C = A B (+ bias), or C += A B if `add`; return C (m, n).

        b is the result of `panels`. A must be contiguous along one of its axes, C along its rows.
        `bias` and `add` exclude each other. `sums` (m,), only for a transposed A, gets the sums of
        A's rows.
        """
        tasks, columns = division(len(a), len(a.T), c.shape[1])
        _multiplying(self)(
            tasks,
            columns,
            a,
            b,
            c,
            NOTHING if bias is None else bias,
            add,
            NOTHING if sums is None else sums,
        )
        return c


def aligned(*shape: int) -> Array:
    """Allocate a float32 array that is aligned to cache lines.

    An AMX tile whose rows cross lines takes three times as long to read.
    """
    size = math.prod(shape)
    memory = np.empty(size + _LINE, np.float32)
    begin = -address(memory) // 4 % _LINE
    return memory[begin : begin + size].reshape(shape)


def copying_tasks(packed: Array) -> int:
    """Return the number of tasks for packing a matrix into these panels."""
    return threads.task_count(packed.size, _COPIED)


@lru_cache(maxsize=256)
def division(m: int, k: int, n: int) -> tuple[int, int]:
    """Return the number of tasks for an (m, k) by (k, n) product, and of columns of their grid.

    C is divided into a grid of tasks. The result is cached, since a step asks for every layer.
    """
    widths = -(-n // WIDTH)
    work = m * k * widths * WIDTH
    if work < 2 * _WORK:
        return 1, 1
    down = min(threads.task_count(work, _WORK), threads.task_count(m, ROWS))
    # If there are too few rows for all threads, the panels are divided among tasks too.
    right = threads.task_count(work // down, _WORK, most=-(-threads.count() // down))
    right = min(right, max(widths, 1))
    return down * right, right


@cache
def _packing(products: Products) -> Any:
    """Return the parallel kernel that packs a matrix into panels."""
    pack = products.pack

    def _pack(task, tasks, b, packed):
        pack(task, tasks, b, packed)

    return threads.parallel("f4[:,:],f4[:,::1]")(variant(_pack, products.name))


@cache
def _multiplying(products: Products) -> Any:
    """Return the parallel kernel of `Products.multiply`."""
    multiply_rows = products.multiply_rows

    def _multiply(task, tasks, columns, a, b, c, bias, add, sums):
        begin, end, left, right = part_of(task, tasks, columns, c)
        multiply_rows(a, b, c, bias, add, sums, begin, end, left, right)

    signature = "i8,f4[:,:],f4[:,::1],f4[:,:],f4[::1],b1,f4[::1]"
    return threads.parallel(signature)(variant(_multiply, products.name))


@inner(signature="i8,i8,f4[:,:],f4[:,::1]")
def pack(task, tasks, b, packed):
    """Pack a task's panels of B in float32, for `Products.panels`."""
    k, n = b.shape
    first, last = threads.slice_of(task, tasks, len(packed))
    down, right = b.strides[0] // 4, b.strides[1] // 4
    for panel in range(first, last):
        at, to = panel * WIDTH * right, panel * k * WIDTH
        used = min(WIDTH, n - panel * WIDTH)
        if right == 1 and used == WIDTH:
            for i in range(k):
                for j in range(0, WIDTH, LANES):
                    store(packed, to + i * WIDTH + j, load(b, at + i * down + j))
        else:
            for i in range(k if used < WIDTH else 0):
                for j in range(used, WIDTH):
                    put(packed, to + i * WIDTH + j, _f(0.0))
            if down == 1:
                transpose(b, at, right, used, k, packed, to, WIDTH)
            else:
                for i in range(k):
                    for j in range(used):
                        put(packed, to + i * WIDTH + j, get(b, at + i * down + j * right))


@inner()
def part_of(task, tasks, columns, c):
    """Return the ranges of rows and panels of C that a task of a `division` computes."""
    begin, end = threads.slice_of(task // columns, tasks // columns, len(c))
    left, right = threads.slice_of(task % columns, columns, (c.shape[1] + WIDTH - 1) // WIDTH)
    return begin, end, left, right


@inner()
def _sum_rows(a, at, a_step, height, depth, sums, first, add):
    """Write the sums of the rows of a transposed block to `sums`, or add them if `add`."""
    partial = empty(HEIGHT, np.float32)
    i = 0
    while i + 2 * LANES <= height:  # two chains of additions, which do not wait for each other
        x, y = splat(_f(0.0)), splat(_f(0.0))
        for step in range(depth):
            x = x + load(a, at + step * a_step + i)
            y = y + load(a, at + step * a_step + i + LANES)
        store(partial, i, x)
        store(partial, i + LANES, y)
        i += 2 * LANES
    while i < height and height >= LANES:  # the last vector may overlap the one before
        i = min(i, height - LANES)
        x = splat(_f(0.0))
        for step in range(depth):
            x = x + load(a, at + step * a_step + i)
        store(partial, i, x)
        i += LANES
    while i < height:
        partial[i] = _f(0.0)
        for step in range(depth):
            partial[i] += get(a, at + step * a_step + i)
        i += 1
    for i in range(height):
        sums[first + i] = partial[i] + (sums[first + i] if add else _f(0.0))


@inner()
def _block(a, at, a_row, a_step, transposed, height, depth, copy):
    """Return the address, row step and k step of a block of A.

    A transposed block whose k step is large is copied first.
    """
    if not transposed:
        return address_of(a, at), a_row, 1
    if a_step < FAR:
        return address_of(a, at), 1, a_step
    whole = height // LANES * LANES
    for step in range(depth):
        here, to = at + step * a_step, step * HEIGHT
        for i in range(0, whole, LANES):
            store(copy, to + i, load(a, here + i))
        for i in range(whole, height):
            put(copy, to + i, get(a, here + i))
    return address_of(copy, 0), 1, HEIGHT


def _multiply_rows(name: str, numbers: int, block: Any, product: Any) -> Any:
    """Return the function that computes rows of a product, `numbers` along k at a step.

    `block` and `product` are those for float32, or of `bfloat16` or `amx`.
    """

    def multiply_rows(a, b, c, bias, add, sums, begin, end, left, right):
        """Compute rows begin … end − 1 of panels left … right − 1 of C.

        An empty `bias` or `sums` stands for none; `sums` is written only if left is 0. The terms of
        every element are added in the same order, so its bits do not depend on how C is divided.
        """
        k, n = a.shape[1], c.shape[1]
        steps = b.shape[1] // WIDTH
        exactly = numbers == 1 and k > _LONG
        low = empty((HEIGHT if exactly else 0, (n + WIDTH - 1) // WIDTH * WIDTH), np.float32)
        part = empty((HEIGHT if exactly else 0, WIDTH), np.float32)
        copy = empty((DEPTH, HEIGHT), np.float32)
        edge = empty((HEIGHT, WIDTH), np.float32)
        a_row, a_step, c_row = a.strides[0] // 4, a.strides[1] // 4, c.strides[0] // 4
        biased, summed = bias.shape[0] > 0, sums.shape[0] > 0 and left == 0
        for first in range(begin, end, HEIGHT):
            height = min(HEIGHT, end - first)
            for i in range(height if exactly else 0):
                for j in range(low.shape[1]):
                    low[i, j] = _f(0.0)
            for start in range(0, max(steps, 1), DEPTH):
                depth = min(DEPTH, steps - start)
                of_k = min(numbers * depth, k - numbers * start)
                x_at = first * a_row + numbers * start * a_step
                if summed:
                    _sum_rows(a, x_at, a_step, height, of_k, sums, first, start > 0)
                x, x_row, x_step = block(
                    a, x_at, a_row, a_step, a_step != 1 or summed, height, of_k, copy
                )
                for panel in range(left, right):
                    c_at, used = first * c_row + panel * WIDTH, min(WIDTH, n - panel * WIDTH)
                    y, y_row, d, d_row = address_of(c, c_at), c_row, nowhere(), 0
                    plus_bias = biased and start == 0
                    if plus_bias:
                        d = address_of(bias, panel * WIDTH)
                    elif add or start > 0:
                        d, d_row = y, y_row
                    if used < WIDTH:
                        y, y_row = address_of(edge, 0), WIDTH
                        for i in range(height if d else 0):
                            for j in range(used):
                                d_ij = get(c, c_at + i * c_row + j)
                                if plus_bias:
                                    d_ij = get(bias, panel * WIDTH + j)
                                put(edge, i * WIDTH + j, d_ij)
                        d, d_row = y if d else d, y_row
                    from_b = address_of(b, (panel * steps + start) * WIDTH)
                    if not (exactly and start > 0):
                        product(height, WIDTH, depth, x, x_row, x_step, from_b,
                                WIDTH, y, y_row, d, d_row)  # fmt: skip
                    elif used < WIDTH:
                        add_product(height, WIDTH, depth, x, x_row, x_step, from_b,
                                    WIDTH, edge, 0, WIDTH, low, panel * WIDTH, part)  # fmt: skip
                    else:
                        add_product(height, WIDTH, depth, x, x_row, x_step, from_b,
                                    WIDTH, c, c_at, c_row, low, panel * WIDTH, part)  # fmt: skip
                    for i in range(height if used < WIDTH else 0):
                        for j in range(used):
                            put(c, c_at + i * c_row + j, get(edge, i * WIDTH + j))
            for i in range(height if exactly else 0):
                for j in range(left * WIDTH, min(right * WIDTH, n)):
                    at = (first + i) * c_row + j
                    put(c, at, get(c, at) + low[i, j])

    return inner(signature="f4[:,:],f4[:,::1],f4[:,:],f4[::1],b1,f4[::1],i8,i8,i8,i8")(
        variant(multiply_rows, name)
    )


def _products(
    name: str, numbers: int, multiple: int, rows: int, pack: Any, block: Any, product: Any
) -> Products:
    """Make `Products` of the functions for one precision."""
    multiply_rows = _multiply_rows(name, numbers, block, product)
    return Products(name, numbers, multiple, rows, pack, product, multiply_rows)


FLOAT32 = _products("float32", 1, 1, ROWS, pack, _block, product)
BFLOAT16 = _products("bfloat16", 2, 1, ROWS, bfloat16.pack, bfloat16.block, bfloat16.product)
BFLOAT16_TILES = _products(
    "bfloat16_tiles", 2, amx.SIDE, amx.ROWS, bfloat16.pack, amx.block, amx.product
)
"""Only where `amx.available` has said so: a process that has not asked for tiles dies of them."""


def products() -> Products:
    """Return the matrix products for the precision that is set now; see `kernels.precision`."""
    if not precision.rounded():
        return FLOAT32
    return BFLOAT16_TILES if amx.available() else BFLOAT16
