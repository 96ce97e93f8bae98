"""The output layer and R-Drop's loss, against the page and float64."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.compare import compare, declined
from tests.kernels.test_linear_cross_entropy import draw

from pellucid import ops
from pellucid.kernels import linear_r_drop as kernel


@pytest.mark.parametrize("sizes", [(131, 17, 53), (1, 3, 2), (7, 5, 1009)])
@pytest.mark.parametrize("alpha, smoothing, with_bias", [(1, 0.0, True), (5, 0.1, False)])
def test_linear_r_drop(
    sizes: tuple[int, int, int], alpha: float, smoothing: float, with_bias: bool
) -> None:
    rows, width, vocabulary = sizes
    x, weight, bias, target = draw(2 * rows, width, vocabulary)
    compare(
        ops.linear_r_drop,
        (x, weight, bias if with_bias else None, target[:rows]),
        {"alpha": alpha, "label_smoothing": smoothing},
        np.float32(0.7),
    )


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias, target = draw(2 * 131, 17, 53)
    monkeypatch.setattr(kernel, "HELD", 2 * 53 * 20)
    compare(ops.linear_r_drop, (x, weight, bias, target[:131]), {"alpha": 3.0}, np.float32(1.0))


def test_a_token_that_both_readings_exclude() -> None:
    x, weight, bias, target = draw(2 * 31, 17, 53)
    bias[5], target[target == 5] = -np.inf, 6
    compare(ops.linear_r_drop, (x, weight, bias, target[:31]), {"alpha": 3.0}, np.float32(1.0))


def test_arrays_that_linear_r_drop_declines() -> None:
    x, weight, bias, target = draw(2 * 31, 17, 53)
    for args in (
        (x, weight, bias, target),
        (x[:-1], weight, bias, target[:31]),
        (x, weight, bias, target[:31] + 53),
        (x.astype(np.float64), weight, bias, target[:31]),
    ):
        assert declined(ops.linear_r_drop, *args)
