"""The fused step against the plain one, and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.test_adam import assert_as_near_as_the_page

from pellucid.core import dispatch
from pellucid.core.vjp import Call, Declined
from pellucid.nn.module import Parameter
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.muon import muon

# wide, tall, square, a single row or column, one number; (34, 17) is two matrices
SHAPES = [(7, 11), (131, 37), (53, 53), (1, 13), (17, 1), (1, 1), (34, 17)]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_fused_step_is_as_near_to_float64_as_the_plain_one(decay: float) -> None:
    assert_as_near_as_the_page(OptimizerConfig("muon", weight_decay=decay), SHAPES, (17, 17))


def test_a_gradient_of_zeros_moves_nothing() -> None:
    weight = Parameter((3, 5), lambda g, s: np.zeros(s))
    weight.data, weight.grad = np.ones((3, 5), np.float32), np.zeros((3, 5), np.float32)
    ModelOptimizer({"layers.0.weight": weight}, OptimizerConfig("muon")).step(lr=0.0)
    np.testing.assert_array_equal(weight.data, 1.0)


def test_it_takes_float32_in_one_piece_and_nothing_else() -> None:
    x = np.ones((3, 5), np.float32)

    def taken(theta: Any, gradient: Any, momentum: Any) -> bool:
        call = Call(muon, ([theta], [gradient], [(momentum,)]), {"step": [1], "lr": 0.1})
        call.arguments["scale"] = 1.0
        return not isinstance(dispatch.fused(call), Declined)

    assert taken(x, x, x)
    assert not taken(x.astype(np.float64), x, x)
    assert not taken(x, np.asfortranarray(x), x)
    assert not taken(x, x, np.broadcast_to(np.float32(1), (3, 5)))
