"""An ONNX graph, node by node, with the parts that Transformers are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pellucid.core.errors import optional
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.embed import Embed
from pellucid.nn import LayerNorm, Linear

Array = np.ndarray

OPSET = 20


def package(name: str) -> Any:
    """Import an optional package. Raises `UserError` saying how to install it."""
    return optional(name, f"this needs the package {name}", extra="export")


class Graph:
    """Collects nodes; a call adds one and returns the name of its output."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Return the name of an array; the same object is stored once."""
        key = f"constant_{id(values)}" if isinstance(values, np.ndarray) else None
        name = key or f"constant_{np.dtype(dtype).name}_{values}"
        if name not in self.constants:
            array = np.ascontiguousarray(values, dtype)
            self.constants[name] = (self._onnx.numpy_helper.from_array(array, name), values)
        return name

    def input(self, name: str, shape: Sequence[Any], whole: bool = False) -> str:
        """Declare an input, of integers or of float32."""
        self._inputs.append(self._value(name, shape, whole))
        return name

    def output(self, name: str, shape: Sequence[Any]) -> None:
        """Declare an output of float32."""
        self._outputs.append(self._value(name, shape, False))

    def _value(self, name: str, shape: Sequence[Any], whole: bool) -> Any:
        kind = self._onnx.TensorProto.INT64 if whole else self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)

    def model(self, name: str) -> Any:
        """Return the finished model, checked."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self.nodes, name, self._inputs, self._outputs, [c for c, _ in self.constants.values()]
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9
        )
        model.producer_name = "pellucid"
        self._onnx.checker.check_model(model, full_check=True)
        return model

    # the parts of a Transformer

    def linear(self, x: str, weight: Array, bias: Array | None) -> str:
        """x Wᵀ + b."""
        turned = self("Transpose", self.constant(weight), perm=[1, 0])
        y = self("MatMul", x, turned)
        return y if bias is None else self("Add", y, self.constant(bias))

    def layer(self, x: str, linear: Linear) -> str:
        """A Linear."""
        bias = None if linear.bias is None else linear.bias.data
        return self.linear(x, linear.weight.data, bias)

    def norm(self, x: str, norm: LayerNorm) -> str:
        """A LayerNorm."""
        weight, bias = (self.constant(part) for part in norm.arrays())
        return self("LayerNormalization", x, weight, bias, axis=-1, epsilon=norm.eps)

    def heads(self, x: str, config: Seq2SeqConfig) -> str:
        """(N, L, E) -> (N, H, L, D)."""
        shape = self.constant((0, 0, config.num_attention_heads, config.head_width), np.int64)
        return self("Transpose", self("Reshape", x, shape), perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, mask: str | None, config: Seq2SeqConfig) -> str:
        """softmax(q kᵀ · factor + mask) v, heads put side by side again: (N, L, E)."""
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.constant(float(config.score_factor)))
        if mask is not None:
            scores = self("Add", scores, mask)
        mean = self("MatMul", self("Softmax", scores, axis=-1), v)
        rows = self("Transpose", mean, perm=[0, 2, 1, 3])
        return self("Reshape", rows, self.constant((0, 0, config.d_model), np.int64))

    def activation(self, x: str, name: str) -> str:
        """An activation by its name in `ops`."""
        if name == "relu":
            return self("Relu", x)
        if name == "leaky_relu":
            return self("LeakyRelu", x, alpha=0.01)
        if name == "silu":
            return self("Mul", x, self("Sigmoid", x))
        return self("Gelu", x, approximate="tanh" if name == "gelu_tanh" else "none")

    def embed(self, tokens: str, embed: Embed, places: str) -> str:
        """Scaled tokens and positions; `places` names rows of the table of positions."""
        s, p = embed.config.token_factor, embed.config.position_factor
        rows = self("Gather", self.constant(embed.tokens.weight.data), tokens)
        rows = self("Mul", rows, self.constant(float(s)))
        return self("Add", rows, self("Mul", places, self.constant(float(p))))

    def mask(self) -> str:
        """0 where a source has a token, far below elsewhere: (N, 1, 1, S)."""
        kept = self("Cast", "attention_mask", to=self._onnx.TensorProto.FLOAT)
        away = self("Mul", self("Sub", self.constant(1.0), kept), self.constant(-1e9))
        return self("Unsqueeze", away, self.constant((1, 2), np.int64))

    def blocks(self, x: str, blocks: Iterable[tuple[Any, LayerNorm]], config: Seq2SeqConfig) -> str:
        """Residual steps, the norm before or after each."""
        for sublayer, norm in blocks:
            if config.norm == "pre":
                x = self("Add", x, sublayer(self.norm(x, norm)))
            else:
                x = self.norm(self("Add", x, sublayer(x)), norm)
        return x

    def feed_forward(self, network: Any, config: Seq2SeqConfig) -> Any:
        """The sublayer of a position-wise network."""

        def sublayer(x: str) -> str:
            h = self.activation(self.layer(x, network.linear1), config.activation_function)
            return self.layer(h, network.linear2)

        return sublayer
