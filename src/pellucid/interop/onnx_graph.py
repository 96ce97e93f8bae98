"""Build an ONNX graph node by node, with methods for the parts of a Transformer."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.core.errors import optional
from pellucid.models.positions import POSITIONS
from pellucid.models.stack import ModelStack, Step
from pellucid.models.walk import array, projections, score_factor
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import FeedForward
from pellucid.nn.layers import Linear, Norm
from pellucid.nn.module import Module
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.ops.rules.window import Window

Array = np.ndarray

OPSET = 20
FORBIDDEN = -1e9
"""Number added to the score of a key that a query must not see."""


def package(name: str) -> Any:
    """Import an optional package. Raises `UserError` saying how to install it."""
    return optional(name, f"this needs the package {name}", extra="export")


class Places(NamedTuple):
    """Names of graph values: positions of queries, positions of keys, and a mask.

    queries: (1 or N, L); keys: (1 or N, S); mask: (N, 1, 1, S), to add to the scores, or None.
    """

    queries: str
    keys: str
    mask: str | None = None


class Graph:
    """An ONNX graph under construction.

    Calling it adds a node and returns its output's name. Methods that "add" something add its nodes
    and return the name of the output. Equal arrays are stored once, and so are equal nodes whose
    output is not named by the caller.
    """

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._made: dict[str, str] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        same = f"{op} {inputs} {sorted(attributes.items())}"
        if output is None and same in self._made:
            return self._made[same]
        name = self._made[same] = output or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant array; return its name."""
        array = np.ascontiguousarray(values, dtype).reshape(np.shape(values))
        digest = hashlib.blake2b(f"{array.dtype} {array.shape} ".encode(), digest_size=12)
        digest.update(array.tobytes())
        name = f"constant_{digest.hexdigest()}"
        if name not in self.constants:
            self.constants[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def input(self, name: str, shape: Sequence[Any], whole: bool = False) -> str:
        """Declare an input, int64 if `whole`, otherwise float32; return its name."""
        self._inputs.append(self._value(name, shape, whole))
        return name

    def output(self, name: str, shape: Sequence[Any]) -> None:
        """Declare a float32 output."""
        self._outputs.append(self._value(name, shape, False))

    def _value(self, name: str, shape: Sequence[Any], whole: bool) -> Any:
        kind = self._onnx.TensorProto.INT64 if whole else self._onnx.TensorProto.FLOAT
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)

    def model(self, name: str) -> Any:
        """Return the finished model after ONNX's checks."""
        helper = self._onnx.helper
        graph = helper.make_graph(
            self.nodes, name, self._inputs, self._outputs, list(self.constants.values())
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
        return self.product(x, linear.weight.learnt, array(linear.bias))

    def norm(self, x: str, norm: Norm) -> str:
        """Add a norm over the last axis."""
        nodes = NORMS[norm.kind].onnx
        assert nodes is not None  # the reader refuses such a model
        arrays = [each.learnt for each in (norm.weight, norm.bias) if each is not None]
        return nodes(self, x, [self.constant(each) for each in arrays], norm.eps)

    def _heads(self, x: str, width: int) -> str:
        """Add the split into heads, (N, L, H · D) -> (N, H, L, D)."""
        shape = self.constant((0, 0, -1, width), np.int64)
        return self("Transpose", self("Reshape", x, shape), perm=[0, 2, 1, 3])

    def projected(self, x: str, attention: Attention, which: slice) -> Iterator[str]:
        """Add projections to queries, keys and values, split into heads.

        Yield their names. which: the slice of (q, k, v) to add.
        """
        norms = attention.q_norm, attention.k_norm, None
        scale, width = array(attention.head_scale), attention.config.head_width
        three = zip("qkv", projections(attention), norms, strict=True)
        for name, (weight, bias), norm in list(three)[which]:
            heads = self._heads(self.product(x, weight, bias), width)
            if norm is not None:
                heads = self.norm(heads, norm)
                if name == "q" and scale is not None:
                    heads = self("Mul", heads, self.constant(scale[:, None, None]))
            yield heads

    def turned(self, x: str, attention: Attention, places: str) -> str:
        """Add rotary positions to queries or keys (N, H, L, D), if the attention has them.

        places: name of their positions, (1 or N, L).
        """
        c = attention.config
        if c.rotate is None:
            return x
        nodes = next(row.onnx for row in POSITIONS.values() if row.rotate is c.rotate)
        assert nodes is not None  # the reader refuses such a model
        speed = c.angles.frequencies(c.head_width // 2)
        both = self.constant(np.concatenate([-speed, speed]), np.float64)
        exact = self("Cast", places, to=self._onnx.TensorProto.DOUBLE)
        at = self("Unsqueeze", exact, self.constant((1, 3), np.int64))
        return nodes(self, x, self("Mul", at, both), c.head_width)

    def seen(self, attention: Attention, stack: ModelStack, places: Places) -> str | None:
        """Add the mask of self-attention: numbers (…, L, S) to add to the scores, or None.

        It combines padding, causality, the window and the bias by distance (learned, or ALiBi's).
        """
        keys = self("Unsqueeze", places.keys, self.constant([1], np.int64))
        queries = self("Unsqueeze", places.queries, self.constant([2], np.int64))
        distance = self("Sub", queries, keys)  # (1 or N, L, S)
        masks = [] if places.mask is None else [places.mask]
        if stack.causal:
            masks.append(self._forbidden(self("Less", distance, self.constant(0, np.int64))))
        if (window := attention.config.rule.part(Window)) is not None:
            reach = self.constant(window.size, np.int64)
            masks.append(self._forbidden(self("GreaterOrEqual", self("Abs", distance), reach)))
        found = stack.distances(attention)
        if found is not None:
            table, reach = found[0], self.constant(found[1], np.int64)
            row = self("Add", self("Max", self("Min", distance, reach), self("Neg", reach)), reach)
            added = self("Gather", self.constant(table.T), row)
            masks.append(self("Transpose", added, perm=[0, 3, 1, 2]))
        while len(masks) > 1:
            masks = [self("Add", *masks[:2]), *masks[2:]]
        return masks[0] if masks else None

    def _forbidden(self, where: str) -> str:
        """Add `FORBIDDEN` where a condition holds, 0 elsewhere."""
        added = self("Where", where, self.constant(FORBIDDEN), self.constant(0.0))
        return self("Unsqueeze", added, self.constant([1], np.int64))

    def attend(self, q: str, k: str, v: str, mask: str | None, attention: Attention) -> str:
        """Add softmax(scores + mask) v and the output projection, (N, L, E), to the graph.

        The scores are q kᵀ · scale, soft-capped if the attention has a `SoftCap`.
        """
        c = attention.config
        k, v = (self._shared(each, attention) for each in (k, v))
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.constant(score_factor(c)))
        if (cap := c.rule.part(SoftCap)) is not None:
            most = self.constant(cap.cap)
            scores = self("Mul", self("Tanh", self("Div", scores, most)), most)
        if mask is not None:
            scores = self("Add", scores, mask)
        mean = self("MatMul", self("Softmax", scores, axis=-1), v)
        rows = self("Transpose", mean, perm=[0, 2, 1, 3])
        joined = self("Reshape", rows, self.constant((0, 0, c.width), np.int64))
        return self.linear(joined, attention.out_proj)

    def _shared(self, x: str, attention: Attention) -> str:
        """Add the repetition of keys or values (N, G, S, D) for the heads that share them."""
        c = attention.config
        if c.groups == c.num_heads:
            return x
        one = self("Unsqueeze", x, self.constant([2], np.int64))
        times = self.constant((1, 1, c.num_heads // c.groups, 1, 1), np.int64)
        shape = self.constant((0, c.num_heads, -1, c.head_width), np.int64)
        return self("Reshape", self("Expand", one, times), shape)

    def embed(self, stack: ModelStack, places: str, segments: str | None = None) -> str:
        """Add the embeddings of `input_ids` with positions, segments and norm.

        places: name of the positions, (1 or N, L).
        """
        embed, c = stack.embed, stack.embed.config
        rows = self("Gather", self.constant(embed.tokens.weight.learnt), "input_ids")
        rows = self("Mul", rows, self.constant(c.token_factor))
        if embed.places is not None:
            scaled = self.constant(embed.places.astype(np.float32) * np.float32(c.position_factor))
            rows = self("Add", rows, self("Gather", scaled, places))
        if embed.segments is not None and segments is not None:
            kinds = self.constant(embed.segments.weight.learnt)
            rows = self("Add", rows, self("Gather", kinds, segments))
        return rows if embed.norm is None else self.norm(rows, embed.norm)

    def mask(self) -> str:
        """Add the padding mask (N, 1, 1, S): 0 for tokens, −1e9 for padding.

        It is computed from the input `attention_mask`.
        """
        kept = self("Cast", "attention_mask", to=self._onnx.TensorProto.FLOAT)
        away = self("Mul", self("Sub", self.constant(1.0), kept), self.constant(FORBIDDEN))
        return self("Unsqueeze", away, self.constant((1, 2), np.int64))

    def length(self, name: str, axis: int) -> str:
        """Add the size of an axis as a scalar."""
        return self("Gather", self("Shape", name), self.constant(axis, np.int64))

    def counted(self, length: str) -> str:
        """Add the positions 0 … length − 1 as (1, length)."""
        zero, one = (self.constant(number, np.int64) for number in (0, 1))
        return self("Unsqueeze", self("Range", zero, length, one), self.constant([0], np.int64))

    def run(self, x: str, stack: ModelStack, attend: Callable[[Step, Attention, str], str]) -> str:
        """Add the blocks and the final norm of a stack.

        attend: adds the attention of a step, given the step, its `Attention` and its input.
        """
        for step in stack.steps:
            norm, body = step.block.norm, step.block.body
            read = self.norm(x, norm) if step.norm_first else x
            if isinstance(body, FeedForward):
                y = self.linear(self.activated(read, body.linear1, body.activation), body.linear2)
            else:
                y = attend(step, body, read)
            x = self("Add", x, y)
            x = x if step.norm_first else self.norm(x, norm)
        return x if stack.norm is None else self.norm(x, stack.norm)

    def activated(self, x: str, linear: Linear, activation: str | Module) -> str:
        """Add a linear layer of x and the activation f after it; return the output's name.

        A gated one is f(first half) · second half.
        """
        row, h = ACTIVATIONS[str(activation)], self.linear(x, linear)
        assert row.onnx is not None  # the reader refuses such a model
        if row.gates == 1:
            return row.onnx(self, h)
        rows = linear.out_features
        gate, value = self._part(h, 0, rows // 2), self._part(h, rows // 2, rows)
        return self("Mul", row.onnx(self, gate), value)

    def _part(self, x: str, start: int, end: int) -> str:
        """Add a slice of the last axis."""
        bounds = (self.constant([number], np.int64) for number in (start, end, -1))
        return self("Slice", x, *bounds)
