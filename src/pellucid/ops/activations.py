"""The activations of the feed-forward network: `ACTIVATIONS` has one record for each.

To add an activation, write its op, optionally a kernel in `kernels/activations`, and a record here.
The name in another format is `None` or empty if that format does not have the activation; an
exporter then refuses it with an error.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pellucid.core.array import Array
from pellucid.core.parts import Registry
from pellucid.core.vjp import Pair, pair_of
from pellucid.ops.gated import Saved as GatedSaved
from pellucid.ops.gated import geglu, geglu_backward, swiglu
from pellucid.ops.gelu import Saved as GeluSaved
from pellucid.ops.gelu import gelu, gelu_backward
from pellucid.ops.leaky_relu import leaky_relu
from pellucid.ops.relu import relu
from pellucid.ops.silu import silu

OnnxNode = Callable[..., str]
"""node(op_type, *inputs, **attributes) -> the name of the node's output."""


@dataclass(frozen=True)
class Activation:
    """An activation: its op, its kernel, and its name in other formats."""

    name: str
    op: Pair
    """Forward and backward."""
    kernel: str | None = None
    """The module below `pellucid.kernels` with the compiled `value(x)` and `slope(x)`. For a gated
    activation, this and the two fields below describe the gate."""
    onnx: Callable[[OnnxNode, str], str] | None = None
    """Adds the ONNX nodes for the input of this name, and returns the name of the output."""
    ctranslate2: str | None = None
    """The member of CTranslate2's enumeration `Activation`."""
    huggingface: tuple[str, ...] = ()
    """The values of Hugging Face's `activation_function` that mean this activation."""
    gates: int = 1
    """Input features per output feature: 2 for a gated activation, (…, 2F) -> (…, F)."""


def _gelu_tanh(x: Array) -> tuple[Array, GeluSaved]:
    """Return ½ x (1 + tanh u), u = √(2/π) (x + 0.044715 x³)."""
    return gelu(x, "tanh")


def _geglu_tanh(x: Array) -> tuple[Array, GatedSaved]:
    return geglu(x, "tanh")


_ROWS = (
    Activation(
        "relu", pair_of(relu),
        kernel="activations.relu",
        onnx=lambda node, x: node("Relu", x),
        ctranslate2="RELU",
        huggingface=("relu",),
    ),
    Activation(
        "leaky_relu", pair_of(leaky_relu),
        kernel="activations.leaky_relu",
        onnx=lambda node, x: node("LeakyRelu", x, alpha=0.01),
    ),
    Activation(
        "gelu", pair_of(gelu),
        kernel="activations.gelu",
        onnx=lambda node, x: node("Gelu", x, approximate="none"),
        ctranslate2="GELU",
        huggingface=("gelu",),
    ),
    Activation(
        "gelu_tanh", Pair(_gelu_tanh, gelu_backward),
        kernel="activations.gelu_tanh",
        onnx=lambda node, x: node("Gelu", x, approximate="tanh"),
        ctranslate2="GELUTanh",
        huggingface=("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    ),
    Activation(
        "silu", pair_of(silu),
        kernel="activations.silu",
        onnx=lambda node, x: node("Mul", x, node("Sigmoid", x)),
        ctranslate2="SWISH",
        huggingface=("silu", "swish"),
    ),
)  # fmt: skip

GATED = (
    ("swiglu", "silu", pair_of(swiglu)),
    ("geglu", "gelu", pair_of(geglu)),
    ("geglu_tanh", "gelu_tanh", Pair(_geglu_tanh, geglu_backward)),
)
"""Gated activations: name, activation of the gate, op. `kernel`, `onnx` and `ctranslate2` are the
gate's."""

ACTIVATIONS: Registry[Activation] = Registry({row.name: row for row in _ROWS})
ACTIVATIONS |= {
    name: replace(ACTIVATIONS[gate], name=name, op=op, huggingface=(), gates=2)
    for name, gate, op in GATED
}
