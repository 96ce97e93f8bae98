"""A call of an op, bound by name, and what observes it."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import nn, ops
from pellucid.core.dispatch import dispatch
from pellucid.core.vjp import Call, Observer, Result, Run, observing

X = np.arange(6.0).reshape(2, 3)


def test_a_call_knows_every_argument_by_name() -> None:
    call = Call(ops.layer_norm, (X,), {"eps": 0.5})
    assert call.x is X
    assert (call.weight, call.bias, call.eps) == (None, None, 0.5)


@pytest.mark.parametrize(
    "args, options", [((), {}), ((X,) * 5, {}), ((X,), {"epsilon": 1.0}), ((X,), {"x": X})]
)
def test_arguments_that_an_op_does_not_have_are_pythons_error(
    args: tuple[object, ...], options: dict[str, object]
) -> None:
    with pytest.raises(TypeError):
        dispatch(ops.layer_norm, *args, **options)


def test_observers_see_every_call_with_the_layer_that_made_it() -> None:
    seen: list[tuple[str, str]] = []

    def watch(call: Call, run: Run) -> Result:
        seen.append((call.path, call.op.__name__))
        return run(call)

    model = nn.Transformer(8, 2, 1, 1, 11, batch_first=True).eval()
    x = np.ones((2, 3, 8), np.float32)
    with observing(watch):
        model(x, x)
    model(x, x)
    attention = [path for path, op in seen if op == "packed_attention"]
    assert attention == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]
    assert ("encoder.layers.0.self_attn.out_proj", "linear") in seen
    assert all(path for path, _ in seen)


def test_the_observer_that_came_last_is_nearest_to_the_op() -> None:
    order: list[str] = []

    def named(name: str) -> Observer:
        def watch(call: Call, run: Run) -> Result:
            order.append(name)
            return run(call)

        return watch

    with observing(named("outer")), observing(named("inner")):
        dispatch(ops.relu, X)
    assert order == ["outer", "inner"]


def test_an_observer_that_asks_for_saved_gets_the_reference_op() -> None:
    kept = []

    def keep(call: Call, run: Run) -> Result:
        call.keep = True
        result = run(call)
        kept.append((call.saved, call.kernel))
        return result

    x = np.ones((17, 5), np.float32)
    with observing(keep):
        dispatch(ops.layer_norm, x)
    saved, kernel = kept[0]
    assert saved is not None
    assert kernel is None
