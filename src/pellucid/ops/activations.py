"""The activations of the feed-forward network: one row says all that is known of each.

A new activation is its page of `ops`, its file in `kernels/activations` if it has one, and a row
here. Names of other formats are `None` or empty where the format cannot express the activation; an
exporter then refuses it by name.
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
    """An activation: its mathematics, its kernel, and what other formats call it."""

    name: str
    op: Pair
    """Forward and backward, as a page of `ops` has them."""
    kernel: str | None = None
    """The module below `pellucid.kernels` with Numba's `value(x)` and `slope(x)`; of a gated one,
    with those of the gate."""
    onnx: Callable[[OnnxNode, str], str] | None = None
    """Makes the ONNX nodes for an input, and returns the name of the output; of a gated one, those
    of the gate."""
    ctranslate2: str | None = None
    """The member of CTranslate2's enumeration `Activation`; of a gated one, the gate's."""
    huggingface: tuple[str, ...] = ()
    """Values of Hugging Face's `activation_function`."""
    gates: int = 1
    """Input features to an output feature: 2 for a gated one, (…, 2F) -> (…, F)."""


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
"""Name, gate and mathematics: all else is the gate's."""

ACTIVATIONS: Registry[Activation] = Registry({row.name: row for row in _ROWS})
ACTIVATIONS |= {
    name: replace(ACTIVATIONS[gate], name=name, op=op, huggingface=(), gates=2)
    for name, gate, op in GATED
}
