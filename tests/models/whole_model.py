"""What the tests of every model share: nothing special in it, and each gradient held to account."""

from __future__ import annotations

from typing import Any

import numpy as np

from pellucid import Rng
from pellucid.core.batch import Batch
from pellucid.nn import Module

H = 1e-6  # so small a step that no ReLU input crosses its kink


def shake(model: Module) -> None:
    """Move every parameter: LayerNorm weights far from 1, biases from 0."""
    noise = np.random.default_rng(5)
    for parameter in model.parameters():
        moved = parameter.data + 0.3 * noise.standard_normal(parameter.shape)
        parameter.data = moved.astype(parameter.data.dtype)


def check_every_gradient(model: Any, batch: Batch, entries: int = 3) -> None:
    """Hold every parameter's gradient against finite differences, to 1e-7 of the model's largest.

    One random direction for each tensor, and `entries` of its entries.
    """
    rng = Rng(3)
    _, backward = model.loss(batch, rng, 0.1)
    backward(1.0)
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    scale = max(float(np.abs(g).max()) for g in gradients.values() if g is not None)
    picks = np.random.default_rng(7)

    def slope(parameter: Any, direction: np.ndarray) -> float:
        here, sides = parameter.data, []
        for sign in (1, -1):
            parameter.data = here + sign * H * direction
            sides.append(model.loss(batch, rng, 0.1)[0].nats)
        parameter.data = here
        return float((sides[0] - sides[1]) / (2 * H))

    for name, parameter in model.named_parameters():
        grad = gradients[name]
        assert grad is not None, name
        directions = [picks.standard_normal(parameter.shape) / parameter.data.size**0.5]
        for entry in picks.choice(parameter.data.size, min(entries, parameter.data.size), False):
            one = np.zeros(parameter.data.size)
            one[entry] = 1.0
            directions.append(one.reshape(parameter.shape))
        if name.endswith("tokens.weight") and model.config.padding_row_zero:
            for direction in directions:
                direction[0] = 0.0  # this row is declared to have no gradient
        for direction in directions:
            expected = slope(parameter, direction)
            assert abs(expected - float((grad * direction).sum())) <= 1e-7 * scale, name
