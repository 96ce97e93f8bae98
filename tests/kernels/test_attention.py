"""Attention on padded batches, which runs on the kernels of packed ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, planned

from pellucid import Rng, nn, ops
from pellucid.core.rng import row_keys

N, H, L, S, D = 3, 2, 11, 7, 5


def draw(*lead: int, length: int = L, source: int = S, joined: bool = True) -> list[np.ndarray]:
    """q, k, v, dout; joined: as they are split from (…, L, E)."""
    random = np.random.default_rng(5)
    shapes = [(length, D), (source, D), (source, 13), (length, 13)]
    if not joined:
        return [random.standard_normal((*lead, H, *shape), np.float32) for shape in shapes]
    arrays = [random.standard_normal((*lead, rows, H, d), np.float32) for rows, d in shapes]
    return [x.swapaxes(-2, -3) for x in arrays]


def named(n: int = N, length: int = L) -> Rng:
    return Rng(3).fold(1).at(row_keys(np.arange(n)[:, None, None], np.arange(length)))


def padding(*sources: int, source: int = S) -> np.ndarray:
    return (np.arange(source) >= np.array(sources)[:, None])[:, None, None, :]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [None, padding(7, 3, 0), padding(4)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_padded_batches(
    joined: bool, causal: bool, mask: np.ndarray | None, dropout: float
) -> None:
    q, k, v, dout = draw(N, joined=joined)
    options = {"mask": mask, "causal": causal, "dropout": dropout, "rng": named()}
    compare(ops.attention, (q, k, v), options, dout)


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_any_axes_in_front(lead: tuple[int, ...]) -> None:
    q, k, v, dout = draw(*lead)
    compare(ops.attention, (q, k, v), {"scale": 0.7}, dout)


def test_keys_shared_by_all_heads() -> None:
    q, k, v, dout = draw(N)
    k, v = (np.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    compare(ops.attention, (q, k, v), {}, dout)


@pytest.mark.parametrize("axes", [(3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_any_order_of_axes_in_memory(axes: tuple[int, ...]) -> None:
    q, k, v, dout = (
        np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes)) for x in draw(N)
    )
    compare(ops.attention, (q, k, v), {}, dout)


def test_a_long_sequence() -> None:
    q, k, v, dout = draw(1, length=301, source=397, joined=False)
    compare(ops.attention, (q, k, v), {"causal": True}, dout)


def test_dropout_draws_the_bits_of_the_page() -> None:
    q = np.zeros((N, H, L, S), np.float32)
    v = np.broadcast_to(np.eye(S, dtype=np.float32), (N, H, S, S)).copy()
    options: dict[str, Any] = {"dropout": 0.4, "rng": named()}
    weights, _ = planned(ops.attention, q, v, v, **options)()
    np.testing.assert_array_equal(weights == 0, ops.attention(q, v, v, **options)[0] == 0)


def test_multihead_attention_gets_the_kernel_without_a_copy() -> None:
    mha = nn.MultiheadAttention(H * D, H, batch_first=True).eval()
    x = np.random.default_rng(3).standard_normal((N, L, H * D), np.float32)
    keys = np.arange(L) >= np.array([[L], [3], [5]])
    fused = mha(x, x, x, keys, need_weights=False)[0]
    plain = mha(x, x, x, keys, need_weights=True)[0]
    np.testing.assert_allclose(fused, plain, atol=1e-6)
    q, k, v, _ = draw(N)
    out, _ = planned(ops.attention, q, k, v)()
    assert out.swapaxes(1, 2).flags.c_contiguous


@pytest.mark.parametrize(
    "options",
    [
        {"mask": np.zeros((L, S), bool)},
        {"mask": np.zeros((N, 1, 1, S), np.float32)},
        {"mask": np.array([False, True, False, False, False, False, False])[None, None, None]},
        {"dropout": 0.1, "rng": Rng(0)},
        {"dropout": 0.1, "rng": Rng(0).at(row_keys(np.arange(H)[:, None], np.arange(L)))},
    ],
)
def test_masks_and_arrays_that_attention_declines(options: dict[str, Any]) -> None:
    q, k, v, _ = draw(N)
    assert declined(ops.attention, q, k, v, **options)
    assert declined(ops.attention, *(x.astype(np.float64) for x in (q, k, v)))
    assert declined(ops.attention, q[:0], k[:0], v[:0])
    assert declined(ops.attention, q, k[:1], v)
