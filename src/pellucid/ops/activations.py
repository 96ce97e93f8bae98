"""The activations of the feed-forward network: one row says all that is known of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pellucid.core.vjp import Pair
from pellucid.ops.bias_act_dropout import ACTIVATIONS as PAIRS

OnnxNode = Callable[..., str]
"""node(op_type, *inputs, **attributes) -> the name of the node's output."""


@dataclass(frozen=True)
class Activation:
    """An activation: its mathematics, its kernel, and what other formats call it."""

    name: str
    op: Pair
    kernel: str | None = None
    """The module below `pellucid.kernels` with Numba's `value(x)` and `slope(x)`."""
    onnx: Callable[[OnnxNode, str], str] | None = None
    """Makes the ONNX nodes for an input, and returns the name of the output."""
    ctranslate2: str | None = None
    """The member of CTranslate2's enumeration `Activation`."""
    huggingface: tuple[str, ...] = ()
    """Values of Hugging Face's `activation_function`; the first is the one to write."""
    gates: int = 1
    """Input features to an output feature: 2 for a gated one, (…, 2F) -> (…, F)."""


_ROWS = (
    Activation(
        "relu", PAIRS["relu"],
        kernel="elementwise.relu",
        onnx=lambda node, x: node("Relu", x),
        ctranslate2="RELU",
        huggingface=("relu",),
    ),
    Activation(
        "leaky_relu", PAIRS["leaky_relu"],
        kernel="elementwise.leaky_relu",
        onnx=lambda node, x: node("LeakyRelu", x, alpha=0.01),
    ),
    Activation(
        "gelu", PAIRS["gelu"],
        kernel="elementwise.gelu",
        onnx=lambda node, x: node("Gelu", x, approximate="none"),
        ctranslate2="GELU",
        huggingface=("gelu",),
    ),
    Activation(
        "gelu_tanh", PAIRS["gelu_tanh"],
        kernel="elementwise.gelu_tanh",
        onnx=lambda node, x: node("Gelu", x, approximate="tanh"),
        ctranslate2="GELUTanh",
        huggingface=("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    ),
    Activation(
        "silu", PAIRS["silu"],
        kernel="elementwise.silu",
        onnx=lambda node, x: node("Mul", x, node("Sigmoid", x)),
        ctranslate2="SWISH",
        huggingface=("silu", "swish"),
    ),
)  # fmt: skip

ACTIVATIONS: dict[str, Activation] = {activation.name: activation for activation in _ROWS}
