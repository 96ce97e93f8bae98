"""The fused step against the plain one, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid import kernels
from pellucid.nn.module import Parameter
from pellucid.training.optimizers import Adam, OptimizerConfig, global_norm

SHAPES = [(7, 11), (13,), (331, 1009), (1,), (0,)]


def trained(config: OptimizerConfig, dtype: Any, steps: int = 5) -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    parameters = {}
    for i, shape in enumerate(SHAPES):
        parameters[str(i)] = Parameter(shape, lambda g, s: np.zeros(s), dtype)
        parameters[str(i)].data = draw.standard_normal(shape).astype(np.float32).astype(dtype)
    optimizer = Adam(parameters, config)
    for _ in range(steps):
        for parameter in parameters.values():
            grad = draw.standard_normal(parameter.shape).astype(np.float32)
            parameter.grad = grad.astype(dtype)
        optimizer.step(lr=0.01, scale=0.37)
    return [p.data for p in parameters.values()] + list(optimizer.state_dict().values())


@pytest.mark.parametrize(
    "config",
    [
        OptimizerConfig(),
        OptimizerConfig(weight_decay=0.1),
        OptimizerConfig(name="adamw", betas=(0.9, 0.98), eps=1e-6),
    ],
)
def test_the_fused_step_is_as_near_to_float64_as_the_plain_one(config: OptimizerConfig) -> None:
    exact = trained(config, np.float64)
    fused = trained(config, np.float32)
    with kernels.reference():
        plain = trained(config, np.float32)
    for true, fast, slow in zip(exact, fused, plain, strict=True):
        scale = np.abs(true).max(initial=0.0)
        allowed = 2 * np.abs(slow - true).max(initial=0.0) + 2 * np.finfo(np.float32).eps * scale
        assert np.abs(fast - true).max(initial=0.0) <= allowed


def test_the_norm_is_the_plain_norm_bit_for_bit_from_run_to_run() -> None:
    x = np.random.default_rng(0).standard_normal((331, 1009)).astype(np.float32)
    with kernels.reference():
        plain = global_norm([x, x[:7].copy()])
    fused = {global_norm([x, x[:7].copy()]) for _ in range(5)}
    assert len(fused) == 1
    assert fused.pop() == pytest.approx(plain, rel=1e-14)


def test_which_step_a_float32_and_a_float64_model_gets() -> None:
    x = np.ones((3, 5), np.float32)
    assert kernels.fused("adam", x, x) is not None
    assert kernels.fused("adam", x.astype(np.float64)) is None
    assert kernels.fused("adam", np.asfortranarray(x)) is None
    with kernels.reference():
        assert kernels.fused("adam", x) is None


def test_a_gradient_that_is_not_finite_is_seen_in_the_norm() -> None:
    x = np.ones(200_003, np.float32)
    x[150_001] = np.inf
    assert global_norm([x]) == np.inf
    x[7] = np.nan
    assert np.isnan(global_norm([x]))
    assert global_norm([np.full(5, 1e30, np.float32)]) == pytest.approx(5**0.5 * 1e30)
