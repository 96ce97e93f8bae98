"""An ONNX graph, node by node, with the parts that Transformers are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pellucid.core.errors import optional
from pellucid.models.describe import (
    Attention,
    FeedForward,
    Linear,
    Norm,
    Residual,
    Stack,
    array,
    projections,
)
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray

OPSET = 20


def package(name: str) -> Any:
    """Import an optional package. Raises `UserError` saying how to install it."""
    return optional(name, f"this needs the package {name}", extra="export")


class Graph:
    """Collects nodes; a call adds one and returns the name of its output.

    `state` are the arrays of the model that is written.
    """

    def __init__(self, onnx: Any, state: Mapping[str, Array]) -> None:
        self._onnx, self.state = onnx, state
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

    def product(self, x: str, weight: Array, bias: Array | None) -> str:
        """Add x Wᵀ + b."""
        transposed = self("Transpose", self.constant(weight), perm=[1, 0])
        y = self("MatMul", x, transposed)
        return y if bias is None else self("Add", y, self.constant(bias))

    def linear(self, x: str, linear: Linear) -> str:
        """Add a linear layer."""
        return self.product(x, self.state[linear.weight.name], array(linear.bias, self.state))

    def norm(self, x: str, norm: Norm) -> str:
        """Add a LayerNorm."""
        names = [tensor.name for tensor in (norm.weight, norm.bias) if tensor is not None]
        arrays = (self.constant(self.state[name]) for name in names)
        return self("LayerNormalization", x, *arrays, axis=-1, epsilon=norm.eps)

    def heads(self, x: str, attention: Attention) -> str:
        """Add (N, L, E) -> (N, H, L, D)."""
        shape = self.constant((0, 0, attention.heads, attention.head_width), np.int64)
        return self("Transpose", self("Reshape", x, shape), perm=[0, 2, 1, 3])

    def projected(self, x: str, attention: Attention, which: slice) -> Iterator[str]:
        """Add some of the projections to queries, keys and values, as heads, one by one."""
        for weight, bias in projections(attention, self.state)[which]:
            yield self.heads(self.product(x, weight, bias), attention)

    def attend(self, q: str, k: str, v: str, mask: str | None, attention: Attention) -> str:
        """Add softmax(q kᵀ · scale + mask) v and the output projection: (N, L, E)."""
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.constant(float(attention.scale)))
        if mask is not None:
            scores = self("Add", scores, mask)
        mean = self("MatMul", self("Softmax", scores, axis=-1), v)
        rows = self("Transpose", mean, perm=[0, 2, 1, 3])
        width = attention.heads * attention.head_width
        joined = self("Reshape", rows, self.constant((0, 0, width), np.int64))
        return self.linear(joined, attention.out_proj)

    def embed(self, tokens: str, stack: Stack, positions: str) -> str:
        """Add scaled tokens and positions; `positions` names rows of the table of positions."""
        rows = self("Gather", self.constant(self.state[stack.tokens.table.name]), tokens)
        rows = self("Mul", rows, self.constant(float(stack.tokens.factor)))
        scaled = self("Mul", positions, self.constant(float(stack.positions.factor)))
        return self("Add", rows, scaled)

    def mask(self) -> str:
        """Add 0 where a source has a token, -1e9 where it has none: (N, 1, 1, S)."""
        kept = self("Cast", "attention_mask", to=self._onnx.TensorProto.FLOAT)
        away = self("Mul", self("Sub", self.constant(1.0), kept), self.constant(-1e9))
        return self("Unsqueeze", away, self.constant((1, 2), np.int64))

    def run(self, x: str, stack: Stack, attend: Callable[[Residual, str], str]) -> str:
        """Add a stack's blocks and final norm; `attend` adds what a block's attention computes."""
        for block in stack.blocks:
            y = self.norm(x, block.norm) if block.placement == "pre" else x
            if isinstance(block.sublayer, FeedForward):
                y = self._network(y, block.sublayer)
            else:
                y = attend(block, y)
            x = self("Add", x, y)
            x = self.norm(x, block.norm) if block.placement == "post" else x
        return x if stack.norm is None else self.norm(x, stack.norm)

    def _network(self, x: str, network: FeedForward) -> str:
        nodes = ACTIVATIONS[network.activation].onnx
        assert nodes is not None  # the reader refuses such a model
        return self.linear(nodes(self, self.linear(x, network.linear1)), network.linear2)
