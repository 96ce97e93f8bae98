from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.kernels.compare import PRODUCTS, compare, declined, planned, rounded

from pellucid import ops
from pellucid.kernels.backend.matmul import FLOAT32, Products
from pellucid.kernels.backend.simd import WIDTH

either = pytest.mark.parametrize("products", PRODUCTS)


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def drawn_for(products: Products, *shape: int) -> np.ndarray:
    """Draw numbers that these products do not round."""
    return draw(*shape) if products is FLOAT32 else rounded(draw(*shape))


@pytest.mark.parametrize(
    "rows, width, outputs", [(17, 5, 3), (131, 37, 71), (97, 263, 521), (11, 1, 1)]
)
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(rows: int, width: int, outputs: int, with_bias: bool) -> None:
    bias = draw(outputs) if with_bias else None
    args = (draw(rows, width), draw(outputs, width), bias)
    compare(ops.linear, args, {}, draw(rows, outputs))


def test_leading_axes_are_rows() -> None:
    compare(ops.linear, (draw(3, 7, 5, 11), draw(13, 11), draw(13)), {}, draw(3, 7, 5, 13))


def test_a_long_sum_is_as_exact_as_on_the_page() -> None:
    compare(ops.linear, (draw(5003, 7), draw(3, 7), draw(3)), {}, draw(5003, 3))
    compare(ops.linear, (draw(11, 5003), draw(3, 5003), None), {}, draw(11, 3))


def test_a_row_has_the_same_bits_whatever_the_other_rows() -> None:
    """What NumPy's BLAS does not promise."""
    x, weight, bias = draw(331, 37), draw(71, 37), draw(71)
    whole, _ = planned(ops.linear, x, weight, bias)()
    for some in (slice(0, 13), slice(1, 200), slice(330 - 11, 331)):
        y, _ = planned(ops.linear, x[some], weight, bias)()
        np.testing.assert_array_equal(y, whole[some])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e-42])
def test_special_values_stay_in_their_row(value: float) -> None:
    x, weight = draw(23, 11), draw(13, 11)
    x[5, 3] = value
    y, plain = planned(ops.linear, x, weight)()[0], ops.linear(x, weight)[0]
    np.testing.assert_array_equal(np.isnan(y), np.isnan(plain))
    np.testing.assert_allclose(y, plain, rtol=1e-5)


@pytest.mark.parametrize("change", ["float64", "strided", "few rows", "no rows"])
def test_arrays_that_linear_declines(change: str) -> None:
    x, weight = draw(23, 11), draw(13, 11)
    if change == "float64":
        x = x.astype(np.float64)
    elif change == "strided":
        x = np.repeat(x, 2, axis=1)[:, ::2]
    else:
        x = x[: 0 if change == "no rows" else 3]
    assert declined(ops.linear, x, weight)


SIZES = [(3, 5, 7), (97, 300, 33), (1, 1, 1), (100, 513, 64), (17, 1031, 541), (45, 2, 32 * 2)]


@either
@pytest.mark.parametrize("m, k, n", SIZES)
def test_multiply_takes_either_layout_and_adds(products: Products, m: int, k: int, n: int) -> None:
    a, b, bias = drawn_for(products, m, k), drawn_for(products, k, n), draw(n)
    exact = a.astype(np.float64) @ b
    wide = np.zeros((k, 1291), np.float32)  # rows of A's transpose that are far apart
    wide[:, 11 : 11 + m] = a.T
    for left in (a, np.asfortranarray(a), wide[:, 11 : 11 + m].T):
        for right in (b, np.asfortranarray(b)):
            packed = products.panels(right)
            c = products.multiply(left, packed, np.full((m, n), np.nan, np.float32))
            np.testing.assert_allclose(c, exact, atol=2e-4)
            np.testing.assert_array_equal(c, products.multiply(a, packed, c.copy()))
            products.multiply(left, packed, c, add=True)
            np.testing.assert_allclose(c, 2 * exact, atol=4e-4)
            products.multiply(left, packed, c, bias)
            np.testing.assert_allclose(c, exact + bias, atol=2e-4)


@either
@pytest.mark.parametrize("m, k, n", SIZES)
def test_multiply_sums_the_rows_of_a_transposed_array(
    products: Products, m: int, k: int, n: int
) -> None:
    a, b, sums = np.asfortranarray(draw(m, k)), draw(k, n), np.full(m, np.nan, np.float32)
    products.multiply(a, products.panels(b), np.empty((m, n), np.float32), sums=sums)
    np.testing.assert_allclose(sums, a.sum(axis=1, dtype=np.float64), atol=2e-4)


@either
def test_panels_have_zeros_after_the_last_row_and_column(products: Products) -> None:
    np.full(1 << 16, np.nan, np.float32)  # what fresh memory may hold
    b, used = np.ones((37, 5), np.float32), -(-37 // products.numbers)
    for layout in (b, np.asfortranarray(b)):
        panels = products.panels(layout).reshape(-1, WIDTH)
        assert panels[:used, :5].all()
        assert not panels[used:].any()
        assert not panels[:, 5:].any()


@either
def test_multiply_writes_into_columns_of_a_larger_array(products: Products) -> None:
    whole = np.zeros((17, 50), np.float32)
    a, b = drawn_for(products, 17, 5), drawn_for(products, 5, 11)
    products.multiply(a, products.panels(b), whole[:, 7:18])
    np.testing.assert_allclose(whole[:, 7:18], a @ b, atol=1e-5)
    assert not whole[:, :7].any()
    assert not whole[:, 18:].any()


GUARDED = """
import ctypes, mmap
import numpy as np
import sys
from pellucid.kernels.backend import matmul

products = getattr(matmul, sys.argv[1])
matmul.amx.available()

def at_the_end(x):
    pages = -(-x.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    end = pages * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(start + end), mmap.PAGESIZE, 0) == 0
    y = np.frombuffer(memory, x.dtype, x.size, end - x.nbytes).reshape(x.shape)
    y[:] = x
    return y

for m, k, n in ((97, 300, 33), (17, 31, 481), (45, 2, 67), (307, 31, 33)):
    a, b = (at_the_end(np.ones(shape, np.float32)) for shape in ((k, m), (k, n)))
    c, sums = np.empty((m, n), np.float32), np.empty(m, np.float32)
    for packed in products.panels(b), products.panels(at_the_end(b.T.copy()).T):
        products.multiply(a.T, packed, c, sums=sums)
        assert (c == k).all() and (sums == k).all()
"""


@either
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
def test_multiply_reads_nothing_behind_its_arrays(products: Products) -> None:
    subprocess.run([sys.executable, "-c", GUARDED, products.name.upper()], check=True)
