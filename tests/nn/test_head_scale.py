"""A learned scale for every head: where it begins, which road it takes, what may be copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import HAS_KERNELS, watching

from pellucid import Rng, nn

H, E = 3, 15
CU = np.array([0, 2, 13])


def layer(dtype: Any = np.float64, **options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(E, H, **{"dtype": dtype, "scale": "learned", "seed": 2, **options})


def uneven(dtype: Any = np.float64) -> nn.MultiheadAttention:
    mha = layer(dtype)
    assert mha.head_scale is not None
    mha.head_scale.data[:] = 0.1, 0.7, -1.3
    return mha


def rows(dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((13, E)).astype(dtype)


def test_it_begins_as_the_papers_scale() -> None:
    plain, learned = layer(scale=None), layer()
    assert "head_scale" not in plain.state_dict()
    np.testing.assert_array_equal(learned.state_dict()["head_scale"], np.full(H, 5**-0.5))
    x, dy = rows(), rows()[::-1]
    (a, a_back), (b, b_back) = (
        mha.run(x, nn.Context(cu_seqlens=CU, rng=Rng(1))) for mha in (plain, learned)
    )
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)
    np.testing.assert_allclose(a_back(dy)[0], b_back(dy)[0], rtol=0, atol=1e-13)


def test_its_gradient_is_that_of_the_scores_times_the_scores() -> None:
    """ds = Σ dA (q·k), from the map that a recorder sees: no way through q' at all."""
    mha, recorder = uneven(), nn.Recorder()
    with recorder:
        _, backward = mha.run(rows(), nn.Context(cu_seqlens=CU, rng=Rng(1)))
    backward(rows()[::-1])
    seen = recorder.maps[""]
    products = seen.q @ seen.k.swapaxes(-1, -2)
    assert mha.head_scale is not None
    assert mha.head_scale.grad is not None
    assert seen.dscores is not None
    expected = (seen.dscores * products).sum(axis=(0, 2, 3))
    assert np.abs(expected).min() > 1e-3
    np.testing.assert_allclose(mha.head_scale.grad, expected, rtol=1e-10)


@HAS_KERNELS
def test_the_fused_kernel_still_runs_and_is_as_good() -> None:
    found = {}
    for dtype in (np.float32, np.float64):
        mha = uneven(dtype)
        with watching() as taken:
            y, backward = mha.run(rows(dtype), nn.Context(cu_seqlens=CU, causal=True))
        dx, _ = backward(rows(dtype)[::-1])
        found[dtype] = [y, dx, *(p.grad for p in mha.parameters())]
        assert taken["packed_attention"] == (dtype == np.float32)
    for single, double in zip(found[np.float32], found[np.float64], strict=True):
        assert single is not None
        assert double is not None
        assert single.dtype == np.float32
        size = max(np.abs(double).max(), 1.0)  # the key bias's true gradient is zero
        assert np.abs(single - double).max() <= 2e-5 * size


def test_another_word_is_no_scale() -> None:
    with pytest.raises(
        ValueError, match="scale must be a number, None or \"learned\", got 'sqrt_d_k'"
    ):
        nn.MultiheadAttention(E, H, scale="sqrt_d_k")  # type: ignore[arg-type]
