"""The norms over the last axis: `NORMS` has the record of each by its name."""

from collections.abc import Callable
from dataclasses import dataclass

from pellucid.core.parts import Registry
from pellucid.core.vjp import Pair
from pellucid.ops.activations import OnnxNode
from pellucid.ops.layer_norm import layer_norm, layer_norm_backward
from pellucid.ops.rms_norm import rms_norm, rms_norm_backward


@dataclass(frozen=True)
class Norm:
    """All that is known of a norm over the last axis. A new one is a file and its row in `NORMS`.

    op: (x, weight, bias, eps) -> y, and backward(dy) -> dx, dweight, dbias.
    """

    name: str
    op: Pair
    has_bias: bool
    """Whether its layer learns a bias besides the weight."""
    onnx: Callable[[OnnxNode, str, list[str], float], str] | None = None
    """Makes the ONNX nodes for an input, its parameters (weight, then bias) and ε."""


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
