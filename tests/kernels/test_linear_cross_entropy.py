"""The output layer and its loss, against the page and float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, planned, results

from pellucid import ops
from pellucid.core.dispatch import dispatch
from pellucid.kernels import linear_cross_entropy as kernel


def draw(rows: int, width: int, vocabulary: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(3)
    x = random.standard_normal((rows, width), np.float32)
    weight = random.standard_normal((vocabulary, width), np.float32)
    bias = random.standard_normal(vocabulary, np.float32)
    return x, weight, bias, random.integers(0, vocabulary, rows)


@pytest.mark.parametrize("sizes", [(131, 17, 53), (1, 3, 2), (7, 5, 1009)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear_cross_entropy(
    sizes: tuple[int, int, int], smoothing: float, with_bias: bool
) -> None:
    x, weight, bias, target = draw(*sizes)
    target[::5] = -100 if len(target) > 1 else target[::5]
    compare(
        ops.linear_cross_entropy,
        (x, weight, bias if with_bias else None, target),
        {"label_smoothing": smoothing},
        np.float32(1.0),
    )


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    args = draw(131, 17, 53)
    monkeypatch.setattr(kernel, "HELD", 53 * 20)
    compare(ops.linear_cross_entropy, args, {}, np.float32(1.0))


@pytest.mark.parametrize(("held", "chunks"), [(53 * 20, 7), (53 * 131, 1), (53 * 131 - 1, 2)])
def test_no_more_logits_are_held_than_is_said(
    monkeypatch: pytest.MonkeyPatch, held: int, chunks: int
) -> None:
    sizes: list[int] = []
    chunk_of = kernel._chunk

    def noting(own: Any) -> Any:
        def chunk(*args: Any) -> None:
            sizes.append(next(x.size for x in args if np.ndim(x) == 2 and x.shape[1] == 53))
            chunk_of(own)(*args)

        return chunk

    monkeypatch.setattr(kernel, "HELD", held)
    monkeypatch.setattr(kernel, "_chunk", noting)
    planned(ops.linear_cross_entropy, *draw(131, 17, 53))()
    assert len(sizes) == chunks
    assert max(sizes) <= held


def test_the_gradient_is_scaled() -> None:
    args = draw(31, 17, 53)
    run = planned(ops.linear_cross_entropy, *args)
    once, thrice = results(run, np.float32(1.0)), results(run, np.float32(3.0))
    for a, b in zip(once[1:], thrice[1:], strict=True):
        assert a.any()
        np.testing.assert_allclose(b, 3 * a, rtol=1e-6)


def test_large_logits_do_not_overflow() -> None:
    x, weight, bias, target = draw(31, 17, 53)
    args = (x * np.float32(1e3), weight, bias, target)
    compare(ops.linear_cross_entropy, args, {}, np.float32(1.0))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("token", [3, 5])
def test_a_token_of_probability_zero(smoothing: float, token: int) -> None:
    """Its logit is −inf: the loss is inf where it is the target, as on the page."""
    x, weight, bias, target = draw(31, 17, 53)
    bias[token], target[7] = -np.inf, 3
    options = {"label_smoothing": smoothing}
    fused, _ = planned(ops.linear_cross_entropy, x, weight, bias, target, **options)()
    plain, _ = ops.linear_cross_entropy(x, weight, bias, target, **options)
    np.testing.assert_allclose(fused, plain, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_logits_that_are_no_numbers_make_the_loss_nan(number: float) -> None:
    """As on the page: a finite loss would hide that a run has diverged."""
    x, weight, bias, target = draw(31, 17, 53)
    target[:] = 5
    bias[3] = number
    fused, _ = planned(ops.linear_cross_entropy, x, weight, bias, target)()
    assert np.isnan(ops.linear_cross_entropy(x, weight, bias, target)[0])
    assert np.isnan(fused)


def test_arrays_that_linear_cross_entropy_declines() -> None:
    x, weight, bias, target = draw(31, 17, 53)
    outside = target.copy()
    outside[3] = 53
    for args in (
        (x.astype(np.float64), weight.astype(np.float64), bias.astype(np.float64), target),
        (x, weight, bias, outside),
        (x[:0], weight, bias, target[:0]),
        (np.asfortranarray(x), weight, bias, target),
        (x, np.asfortranarray(weight), bias, target),
    ):
        assert declined(ops.linear_cross_entropy, *args)
    with pytest.raises(IndexError, match="targets must lie"):
        dispatch(ops.linear_cross_entropy, x, weight, bias, outside)
