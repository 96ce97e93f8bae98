"""The matrix products of compiled decoding, y = x Wᵀ + b, in float32 or int8.

All matrices of a model are in the same arithmetic: in `w.bytes` for int8, else in `w.floats`.
`prepare` rounds the rows of x to int8, once for all products that read them; `fill` writes the
product, `add` adds it. The bits of a row do not depend on other rows.
"""

from typing import Any, NamedTuple

import numpy as np

from pellucid.kernels.backend import int8
from pellucid.kernels.backend.compile import empty, inner
from pellucid.kernels.backend.matmul import DEPTH, HEIGHT
from pellucid.kernels.backend.simd import LANES, WIDTH, address_of, load, store
from pellucid.kernels.backend.tile import product


class Rounded(NamedTuple):
    """Rows rounded to int8 with a scale for each row; empty in float32 arithmetic."""

    rows: Any
    scales: Any


@inner()
def in_int8(w):
    """Return whether a model's matrices are in int8."""
    return w.bytes.shape[1] > 0


@inner()
def room(w, rows, k):
    """Allocate a `Rounded` for `rows` rows of at most k numbers; empty in float32."""
    if not in_int8(w):
        rows, k = 0, 0
    wide = (k + int8.STEP - 1) // int8.STEP * int8.STEP
    return Rounded(empty((rows, wide), np.uint8), empty(rows, np.float32))


@inner()
def prepare(x, k, w, rounded):
    """Round X[:, :k] to int8 if the model is in int8.

    X must be zero from column k up to the next multiple of `LANES`.
    """
    if in_int8(w):
        int8.round_rows(x, k, rounded.rows, rounded.scales)


@inner()
def fill(x, rounded, k, w, at, bias, c, panels):
    """Compute C[:, : panels · WIDTH] = X[:, :k] Wᵀ + b.

    W is stored in panels from offset `at` of `w.floats`, or of `w.bytes` in int8; b from offset
    `bias` of `w.floats`. In int8, X is read from `rounded`, which `prepare` has filled.
    """
    if in_int8(w):
        int8.product(rounded.rows, rounded.scales, k, w.bytes, at, panels, w.floats, bias, c, False)
    else:
        times(x, k, w.floats, at, bias, c, panels)


@inner()
def add(x, rounded, k, w, at, bias, c, panels):
    """Add X[:, :k] Wᵀ + b to C, whose width is panels · WIDTH; arguments as in `fill`."""
    if in_int8(w):
        int8.product(rounded.rows, rounded.scales, k, w.bytes, at, panels, w.floats, bias, c, True)
    else:
        add_bias(c, w.floats, bias)
        times(x, k, w.floats, at, -1, c, panels)


@inner()
def times(a, k, w, at, bias, c, panels):
    """Compute C[:, : panels · WIDTH] = A[:, :k] W + b in float32.

    W is stored in panels from offset `at` of w, b from offset `bias`. If `bias` is negative,
    A[:, :k] W is added to C instead.
    """
    m, a_row, c_row = len(a), a.shape[1], c.shape[1]
    for first in range(0, m, HEIGHT):
        height = min(HEIGHT, m - first)
        for start in range(0, k, DEPTH):
            depth = min(DEPTH, k - start)
            for panel in range(panels):
                y = address_of(c, first * c_row + panel * WIDTH)
                d, d_row = y, c_row
                if start == 0 and bias >= 0:
                    d, d_row = address_of(w, bias + panel * WIDTH), 0
                product(
                    height, WIDTH, depth, address_of(a, first * a_row + start), a_row, 1,
                    address_of(w, at + (panel * k + start) * WIDTH), WIDTH, y, c_row, d, d_row,
                )  # fmt: skip


@inner()
def add_bias(c, w, at):
    """Add the bias at offset `at` of w to every row of C, in place."""
    for i in range(len(c)):
        for j in range(0, c.shape[1], LANES):
            here = i * c.shape[1] + j
            store(c, here, load(c, here) + load(w, at + j))
