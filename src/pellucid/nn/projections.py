"""The projections to queries, keys and values, and the steps between them and attention.

These steps normalise, rotate, scale and share heads; each returns its result and a backward. A step
that a layer does not use returns its input. Parameters have torch's names.
"""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pellucid import ops
from pellucid.core.array import Array, like, namespace
from pellucid.core.batch import positions_of
from pellucid.core.dispatch import dispatch
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context
from pellucid.nn.init import xavier_uniform, zeros
from pellucid.nn.layers import Norm
from pellucid.nn.module import Forward, Module, Parameter, learning

Backward = Callable[..., Any]
Heads = tuple[Array, Array, Array]
"""q (T, H, D), k and v (U, G, D), G heads of keys and values."""


class Projection(NamedTuple):
    """The weight and bias of one projection (or several adjacent ones), as views of parameters."""

    weight: Array
    bias: Array | None


class Projections(NamedTuple):
    """The projections to queries, keys and values."""

    q: Projection
    k: Projection
    v: Projection


class Projected(Module):
    """Base class of attention: the projections of rows to heads.

    Their weights are one matrix for q, k and v, or three if kdim or vdim differs from embed_dim.
    """

    def __init__(self, config: AttentionConfig, dtype: Any) -> None:
        c, self.head_width = config, config.head_width
        q, kv, e = c.width, c.groups * c.head_width, c.embed_dim
        self._widths = q, kv, kv  # rows of q, k and v in the packed matrix
        self.in_proj_weight: Parameter | None = None
        self.q_proj_weight: Parameter | None = None
        self.k_proj_weight: Parameter | None = None
        self.v_proj_weight: Parameter | None = None
        if c.kdim in (None, e) and c.vdim in (None, e):
            self.in_proj_weight = Parameter((q + 2 * kv, e), xavier_uniform, dtype)
            self.in_proj_weight.packed = self._widths
        else:
            self.q_proj_weight = Parameter((q, e), xavier_uniform, dtype)
            self.k_proj_weight = Parameter((kv, c.kdim or e), xavier_uniform, dtype)
            self.v_proj_weight = Parameter((kv, c.vdim or e), xavier_uniform, dtype)
        has_bias = c.bias if c.qkv_bias is None else c.qkv_bias
        self.in_proj_bias = Parameter((q + 2 * kv,), zeros, dtype) if has_bias else None

    def projections(self) -> Projections:
        """Return the weight and bias of q, k and v separately, as views, not copies.

        >>> import numpy as np
        >>> from pellucid import nn
        >>> attention = nn.MultiheadAttention(8, 2)
        >>> np.shares_memory(attention.projections().k.weight, attention.in_proj_weight.data)
        True
        """
        return Projections(*(self._rows_of(i, i + 1) for i in range(3)))

    def _rows_of(self, first: int, end: int) -> Projection:
        """Return the projections first … end − 1 (0 = q, 1 = k, 2 = v) as one.

        Raises `ValueError` for several that are separate matrices.
        """
        rows = slice(sum(self._widths[:first]), sum(self._widths[:end]))
        if self.in_proj_weight is not None:
            weight = self.in_proj_weight.data[rows, :]
        elif end - first == 1:
            weight = self._separate()[first].data
        else:
            raise ValueError(
                "rows are projected by one matrix, which needs kdim = vdim = embed_dim; use "
                "forward(query, key, value) for other widths"
            )
        bias = None if self.in_proj_bias is None else self.in_proj_bias.data[rows]
        return Projection(weight, bias)

    def _separate(self) -> list[Parameter]:
        """Return the weights of q, k and v if they are separate parameters, else an empty list."""
        apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [p for p in apart if p is not None]

    def project(
        self,
        path: str,
        *inputs: tuple[Array, int, int],
        then: Callable[[Array, tuple[int, int]], Forward],
    ) -> tuple[Heads, Backward]:
        """Project rows to heads; return ((q, k, v), backward), q (T, H, D), k and v (U, G, D).

        inputs: tuples (x, first, end) of rows x (T, width) and the projections first … end − 1 to
        apply to them (0 = q, 1 = k, 2 = v), by one matrix product.
        then: a step applied to all heads of an input, (T, N, D), called with the numbers of query
        and key heads among them; it returns (y, backward).
        `backward(dq, dk, dv)` returns a tuple with the gradient of each x, and accumulates the
        parameters'.
        """
        d, heads, backwards = self.head_width, list[Array](), []
        for x, first, end in inputs:
            y, back = dispatch(ops.linear, x, *self._rows_of(first, end), path=path)
            shape, counts = y.shape, [0, 0, 0]
            counts[first:end] = (width // d for width in self._widths[first:end])
            split = namespace(y).reshape(y, (x.shape[0], sum(counts), d))
            y, then_back = then(split, (counts[0], counts[1]))
            begin = 0
            for count in counts[first:end]:
                heads.append(y[:, begin : begin + count, :])
                begin += count
            backwards.append((back, then_back, shape))
        q, k, v = heads

        def backward(*dheads: Array) -> tuple[Array, ...]:
            given = (side_by_side(*dheads[first:end]) for _, first, end in inputs)
            grads = [
                back(namespace(dy).reshape(then_back(dy), shape))
                for (back, then_back, shape), dy in zip(backwards, given, strict=True)
            ]
            dinputs, dweights, dbiases = (list(part) for part in zip(*grads, strict=True))
            if self.in_proj_weight is not None:
                self.in_proj_weight.accumulate(_joined(dweights))
            for parameter, dweight in zip(self._separate(), dweights, strict=False):
                parameter.accumulate(dweight)
            if self.in_proj_bias is not None:
                self.in_proj_bias.accumulate(_joined(dbiases))
            return tuple(dinputs)

        return (q, k, v), backward


def _joined(parts: list[Array]) -> Array:
    """Concatenate arrays along the first axis; a single one is returned itself."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts)


def norm_rotate(
    x: Annotated[Array, "T N D"],
    heads: tuple[int, int],
    norms: tuple[Norm | None, Norm | None],
    config: AttentionConfig,
    context: Context,
) -> tuple[Annotated[Array, "T N D"], Backward]:
    """Normalise and rotate the query and key heads of x, as the config says (`ops.norm_rotate`).

    x has heads[0] query heads, then heads[1] key heads, then value heads, which do not change.
    An x without query heads holds rows of the context's memory, counted from their first. (It has
    no rows if a cache has the keys.)
    """
    weights = [
        n.weight if n is not None and count else None for n, count in zip(norms, heads, strict=True)
    ]
    if not any(heads) or (weights == [None, None] and config.rotate is None):
        return x, lambda dy: dy
    options: dict[str, Any] = {"angles": config.angles, "path": context.path}
    if config.qk_norm is not None:
        options["eps"] = config.qk_norm
    positions = None
    if config.rotate is not None:
        places = context.row_positions()
        if not heads[0] and context.memory is not None:
            places = positions_of(context.memory.cu_seqlens)[: x.shape[0]]
        options["rotate"], positions = config.rotate, like(places, x)
    arrays = (None if weight is None else weight.data for weight in weights)
    return learning(weights, *dispatch(ops.norm_rotate, x, heads, *arrays, positions, **options))


def share(
    k: Annotated[Array, "U G D"], v: Annotated[Array, "U G Dv"], times: int, path: str
) -> tuple[Annotated[Array, "U H D"], Annotated[Array, "U H Dv"], Backward]:
    """Repeat each key and value head `times` times, once for every query head that shares it.

    Returns (k, v, backward), where backward(dk, dv) returns the gradients of the arguments.
    """
    if times == 1:
        return k, v, lambda dk, dv: (dk, dv)
    (k, k_backward), (v, v_backward) = (
        dispatch(ops.share_heads, x, times, path=path) for x in (k, v)
    )
    return k, v, lambda dk, dv: (k_backward(dk), v_backward(dv))


def scale(
    q: Annotated[Array, "T H D"], factors: Parameter | None, path: str
) -> tuple[Annotated[Array, "T H D"], Backward]:
    """Multiply the queries (T, H, D) by a learned factor for each head, (H,).

    Returns (q, backward); without factors, q itself.
    """
    if factors is None:
        return q, lambda dq: dq
    return learning((factors,), *dispatch(ops.head_scale, q, factors.data, path=path))


def side_by_side(*parts: Array) -> Array:
    """Concatenate arrays (T, H, D) along the heads, without a copy where that is possible.

    It is if they are, in order, all the parts base[:, i] of one NumPy array (T, n, H, D).
    """
    if len(parts) == 1:
        return parts[0]
    t, heads, width = parts[0].shape
    n, xp = len(parts), namespace(*parts)
    base = getattr(parts[0], "base", None)  # the array of which a NumPy view shows a part
    if (
        base is not None
        and getattr(base, "shape", None) == (t, n, heads, width)
        and all(part.base is base for part in parts)
    ):
        return xp.reshape(base, (t, n * heads, width))
    return xp.concat(parts, axis=1)
