"""The fused norm against the plain one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.compare import declined

from pellucid.core import dispatch
from pellucid.optim.model import global_norm


def test_the_norm_is_the_plain_norm_bit_for_bit_from_run_to_run() -> None:
    x = np.random.default_rng(0).standard_normal((331, 1009)).astype(np.float32)
    with dispatch.reference():
        plain = global_norm([x, x[:7].copy()])
    fused = {global_norm([x, x[:7].copy()]) for _ in range(5)}
    assert len(fused) == 1
    assert fused.pop() == pytest.approx(plain, rel=1e-14)


def test_a_gradient_that_is_not_finite_is_seen_in_the_norm() -> None:
    x = np.ones(200_003, np.float32)
    x[150_001] = np.inf
    assert global_norm([x]) == np.inf
    x[7] = np.nan
    assert np.isnan(global_norm([x]))
    assert global_norm([np.full(5, 1e30, np.float32)]) == pytest.approx(5**0.5 * 1e30)


def test_it_takes_float32_in_one_piece_and_nothing_else() -> None:
    x = np.ones((3, 5), np.float32)
    assert not declined(global_norm, [x, x])
    assert declined(global_norm, [x, x.astype(np.float64)])
    assert declined(global_norm, [np.asfortranarray(x)])
