"""The fused step against the plain one, and against float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pellucid.core import dispatch
from pellucid.core.vjp import Call, Declined
from pellucid.nn.module import Parameter
from pellucid.optim.adam import adam
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer

SHAPES = [(7, 11), (13,), (331, 1009), (1,), (0,)]
Shapes = Sequence[tuple[int, ...]]


def trained(
    config: OptimizerConfig, dtype: Any, shapes: Shapes, packed: tuple[int, ...] = ()
) -> list[np.ndarray]:
    """Take five steps of parameters of a layer; `packed` are the matrices of the last one."""
    draw = np.random.default_rng(3)
    parameters = {}
    for i, shape in enumerate(shapes):
        parameter = Parameter(shape, lambda g, s: np.zeros(s), dtype)
        parameter.data = draw.standard_normal(shape).astype(np.float32).astype(dtype)
        parameters[f"layers.{i}.weight"] = parameter
    parameter.packed = packed
    optimizer = ModelOptimizer(parameters, config)
    for _ in range(5):
        for parameter in parameters.values():
            grad = draw.standard_normal(parameter.shape).astype(np.float32)
            parameter.grad = grad.astype(dtype)
        optimizer.step(lr=0.01, scale=0.37)
    return [p.data for p in parameters.values()] + list(optimizer.state_dict().values())


def assert_as_near_as_the_page(
    config: OptimizerConfig, shapes: Shapes, packed: tuple[int, ...] = ()
) -> None:
    """The fused step is as near to float64 as the plain one."""
    exact = trained(config, np.float64, shapes, packed)
    fused = trained(config, np.float32, shapes, packed)
    with dispatch.reference():
        plain = trained(config, np.float32, shapes, packed)
    for true, fast, slow in zip(exact, fused, plain, strict=True):
        scale = np.abs(true).max(initial=0.0)
        allowed = 2 * np.abs(slow - true).max(initial=0.0) + 2 * np.finfo(np.float32).eps * scale
        assert np.abs(fast - true).max(initial=0.0) <= allowed


@pytest.mark.parametrize(
    "config",
    [
        OptimizerConfig(),
        OptimizerConfig(weight_decay=0.1),
        OptimizerConfig(name="adamw", betas=(0.9, 0.98), eps=1e-6),
    ],
)
def test_the_fused_step_is_as_near_to_float64_as_the_plain_one(config: OptimizerConfig) -> None:
    assert_as_near_as_the_page(config, SHAPES)


def test_it_takes_float32_in_one_piece_and_nothing_else() -> None:
    x = np.ones((3, 5), np.float32)

    def taken(theta: Any, gradient: Any, *moments: Any) -> bool:
        call = Call(adam, ([theta], [gradient], [moments]), {"step": [1], "lr": 0.1})
        call.arguments["scale"] = 1.0
        return not isinstance(dispatch.fused(call), Declined)

    assert taken(x, x, x, x)
    assert not taken(x.astype(np.float64), x, x, x)
    assert not taken(x, np.asfortranarray(x), x, x)
    assert not taken(x, x, x, np.broadcast_to(np.float32(1), (3, 5)))
