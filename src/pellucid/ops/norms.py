"""The norms over the last axis: `NORMS` has a record for each, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from pellucid.core.parts import Registry
from pellucid.core.vjp import Pair
from pellucid.ops.activations import OnnxNode
from pellucid.ops.layer_norm import layer_norm, layer_norm_backward
from pellucid.ops.rms_norm import rms_norm, rms_norm_backward


@dataclass(frozen=True)
class Norm:
    """A norm over the last axis: its op, and how to export it. Add a new norm to `NORMS`.

    The op's forward is (x, weight, bias, eps) -> (y, saved), its backward
    (dy, saved) -> (dx, dweight, dbias).
    """

    name: str
    op: Pair
    has_bias: bool
    """Whether the layer has a learned bias in addition to the weight."""
    onnx: Callable[[OnnxNode, str, list[str], float], str] | None = None
    """Adds the ONNX nodes for an input, its parameters (weight, then bias) and ε."""


def _onnx_layer_norm(node: OnnxNode, x: str, parameters: list[str], eps: float) -> str:
    return node("LayerNormalization", x, *parameters, axis=-1, epsilon=eps)


def _onnx_rms_norm(node: OnnxNode, x: str, parameters: list[str], eps: float) -> str:
    last = node("Constant", value_ints=[-1])
    square = node("ReduceMean", node("Mul", x, x), last)
    rms = node("Sqrt", node("Add", square, node("Constant", value_float=eps)))
    return node("Mul", node("Div", x, rms), *parameters)


NORMS: Registry[Norm] = Registry(
    (norm.name, norm)
    for norm in (
        Norm(
            "layer_norm",
            Pair(layer_norm, layer_norm_backward),
            has_bias=True,
            onnx=_onnx_layer_norm,
        ),
        Norm("rms_norm", Pair(rms_norm, rms_norm_backward), has_bias=False, onnx=_onnx_rms_norm),
    )
)
