"""The checking mode names an array that was changed between a forward and its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid import nn, ops
from pellucid.core.checked import ChangedError
from pellucid.core.dispatch import dispatch
from pellucid.ops import rules
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer

Change = Callable[[Any, np.ndarray], None]


def change_input(layer: Any, x: np.ndarray) -> None:
    x[0, 0, 0] += 1


def change_weight(layer: Any, x: np.ndarray) -> None:
    layer.linear2.weight.data[0] = 0


def change_packed_projection(layer: Any, x: np.ndarray) -> None:
    layer.self_attn.in_proj_weight.data[-1] = 0


def take_a_step(layer: Any, x: np.ndarray) -> None:
    for parameter in layer.parameters():
        parameter.grad = np.ones_like(parameter.data)
    ModelOptimizer(dict(layer.named_parameters()), OptimizerConfig()).step(0.1)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (change_input, r"the \w+ of \w+"),
        (change_weight, r"linear2.weight \(the weight of \w+\)"),
        (change_packed_projection, r"self_attn.in_proj_weight \(the weight of linear\)"),
        (take_a_step, r"[\w.]+ \(the \w+ of \w+\)"),
    ],
)
def test_a_change_between_forward_and_backward_is_named(
    change: Change, name: str, kernels: bool
) -> None:
    dtype = np.float32 if kernels else np.float64
    layer = nn.TransformerEncoderLayer(6, 2, 11, batch_first=True, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(dtype)

    def run() -> Any:
        y, backward = layer.forward(x, rng=pellucid.Rng(0))
        change(layer, x)
        return backward(np.ones_like(y))

    with pellucid.checked(layer), pytest.raises(ChangedError, match=f"^{name} was changed between"):
        run()
    run()  # outside nothing is checked


def test_arrays_left_alone_give_the_same_gradients() -> None:
    layer = nn.TransformerDecoderLayer(6, 2, 11, batch_first=True)
    x = np.random.default_rng(0).standard_normal((2, 5, 6)).astype(np.float32)

    def gradients() -> list[np.ndarray]:
        layer.zero_grad()
        y, backward = layer.forward(x, x[:, :3], rng=pellucid.Rng(0), tgt_is_causal=True)
        inputs = backward(np.cos(y))
        return [*inputs, *(p.grad for p in layer.parameters() if p.grad is not None)]

    plain = gradients()
    with pellucid.checked():
        compared = gradients()
    for one, other in zip(plain, compared, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("part", "array"),
    [
        (rules.mask, np.arange(20).reshape(4, 5) % 3 == 1),
        (rules.mask, np.ones((4, 5))),
        (rules.sinks, np.zeros(2)),
    ],
    ids=["bool mask", "float mask", "sinks"],
)
def test_the_arrays_of_a_rule_are_checked(part: Any, array: np.ndarray, kernels: bool) -> None:
    own = array.copy()
    dtype = np.float32 if kernels else np.float64
    q, k, v = (np.ones((1, 2, length, 3), dtype) for length in (4, 5, 5))
    with pellucid.checked():
        y, backward = dispatch(ops.attention, q, k, v, rule=part(own))
        own[...] = 1 - own
        with pytest.raises(ChangedError, match=r"^the rule of attention was changed"):
            backward(y)


def test_what_a_rule_has_learnt_has_the_name_of_its_parameter() -> None:
    config = nn.config.AttentionConfig(embed_dim=6, num_heads=2, sinks=True)
    layer = nn.attention.Attention(config)
    x = np.ones((5, 6), np.float32)
    with pellucid.checked(layer):
        y, backward = layer.run(x, nn.Context(cu_seqlens=np.array([0, 5])))
        assert layer.sinks is not None
        layer.sinks.data += 1
        with pytest.raises(ChangedError, match=r"^sinks \(the rule of packed_attention\)"):
            backward(y)


@pytest.mark.oracle("torch")
def test_an_array_of_another_library_is_checked() -> None:
    import torch

    x = torch.ones(3)
    with pellucid.checked():
        y, backward = dispatch(ops.gelu, x)
        x += 1
        with pytest.raises(ChangedError, match="the x of gelu"):
            backward(torch.ones_like(y))
