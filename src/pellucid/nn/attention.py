"""Multi-head attention: torch's arguments over one body, `run`, which works on rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

from pellucid import ops
from pellucid.core.array import (
    Array,
    float32,
    host,
    host_dtype,
    like,
    locked,
    namespace,
    to_host,
)
from pellucid.core.batch import followed, one_length, pad_rows
from pellucid.core.rng import Rng
from pellucid.core.vjp import Call, Result, Run, check_gradient, joined, observing
from pellucid.kernels import dispatch
from pellucid.nn.arrange import Arrangement, check_attention_inputs
from pellucid.nn.context import Context, KeysValues, cached_mask
from pellucid.nn.function import active_dropout, check_finite, check_probability
from pellucid.nn.init import constant, normal, xavier_normal, xavier_uniform, zeros
from pellucid.nn.layers import Linear, Norm
from pellucid.nn.masks import both, combine, with_free_keys
from pellucid.nn.module import Forward, Module, Parameter, single_use
from pellucid.nn.variant import PAPER, Variant, distances
from pellucid.ops.attention import score_gradient

Backward = Callable[..., Any]
Heads = tuple[Array, Array, Array]
"""q (T, H, D), k and v (U, G, D), G heads of keys and values."""


class Projection(NamedTuple):
    """One of the three projections before the heads, as views of the layer's own arrays."""

    weight: Array
    bias: Array | None


class Projections(NamedTuple):
    """The maps of query, key and value."""

    q: Projection
    k: Projection
    v: Projection


class MultiheadAttention(Module):
    """Concat(head₁, …, head_H) Wᴼ with head_i = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V).

    torch.nn.MultiheadAttention's arguments, and one of ours: `scale` multiplies the scores
    (default 1/√D); "learned" makes it a parameter, `head_scale` (H,), one number for each head,
    which begins at 1/√D and is put into the queries (`ops.head_scale`). `variant`, also ours, says
    what else differs from the paper (`nn.variant`); it is not for torch's call, `forward`.
    `run` attends from rows to themselves, `run_cross` to a memory; both return (y, backward).
    `forward`, torch's call, returns `((output, weights or None), backward)` and
    `backward(doutput, dweights=None)` returns the gradients of query, key and value.
    A query with every key forbidden gets out_proj.bias and gives zero gradient.
    Raises `ValueError` when num_heads does not divide embed_dim (or the heads of keys and values do
    not divide num_heads), and for a scale of another word or one that is not finite.
    Source: Vaswani et al. 2017, 3.2.2; seeds 000 and 004.

    >>> import numpy as np
    >>> mha = MultiheadAttention(8, 2, batch_first=True)
    >>> x = np.ones((3, 5, 8), np.float32)
    >>> out, weights = mha(x, x, x)
    >>> out.shape, weights.shape
    ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: Any = float32,
        scale: float | Literal["learned"] | None = None,
        variant: Variant = PAPER,
        seed: int | None = 0,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be positive, got {embed_dim} and {num_heads}"
            )
        if variant.head_dim is None and embed_dim % num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim: {embed_dim} is not a multiple of {num_heads}"
            )
        check_probability(dropout)
        if isinstance(scale, str) and scale != "learned":
            raise ValueError(f'scale must be a number, None or "learned", got {scale!r}')
        if isinstance(scale, float | int):
            check_finite(scale, "scale")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = variant.head_dim or embed_dim // num_heads
        self.variant, self.key_value_heads = variant, variant.key_value_heads or num_heads
        q, kv = self.width, self.key_value_heads * self.head_dim
        self._ends = 0, q, q + kv, q + 2 * kv  # of the rows of q, k and v in the packed matrix
        if num_heads % self.key_value_heads:
            raise ValueError(
                f"the heads of keys and values must divide num_heads: {num_heads} is not a "
                f"multiple of {self.key_value_heads}"
            )
        if add_bias_kv and variant != PAPER:
            raise ValueError("add_bias_kv belongs to the paper's attention; leave `variant` out")
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        self.scale = 1.0 if isinstance(scale, str) else scale
        self.in_proj_weight: Parameter | None = None
        self.q_proj_weight: Parameter | None = None
        self.k_proj_weight: Parameter | None = None
        self.v_proj_weight: Parameter | None = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter((q + 2 * kv, embed_dim), xavier_uniform, dtype)
            self.in_proj_weight.packed = q, kv, kv
        else:
            self.q_proj_weight = Parameter((q, embed_dim), xavier_uniform, dtype)
            self.k_proj_weight = Parameter((kv, self.kdim), xavier_uniform, dtype)
            self.v_proj_weight = Parameter((kv, self.vdim), xavier_uniform, dtype)
        qkv_bias = bias if variant.qkv_bias is None else variant.qkv_bias
        self.in_proj_bias = Parameter((q + 2 * kv,), zeros, dtype) if qkv_bias else None
        self.bias_k = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.bias_v = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.relative_bias: Parameter | None = None
        if variant.relative is not None:
            table = (variant.relative.buckets, num_heads)
            self.relative_bias = Parameter(table, normal(embed_dim**-0.5), dtype)
        self.head_scale: Parameter | None = None
        if isinstance(scale, str):
            self.head_scale = Parameter((num_heads,), constant(self.head_dim**-0.5), dtype)
        self.q_norm: Norm | None = None
        self.k_norm: Norm | None = None
        if variant.qk_norm is not None:
            self.q_norm, self.k_norm = (
                Norm("rms_norm", self.head_dim, variant.qk_norm, dtype=dtype) for _ in range(2)
            )
        self.out_proj = Linear(self.width, embed_dim, bias, dtype=dtype, seed=None)
        if self.out_proj.bias is not None:
            self.out_proj.bias.init = zeros
        self.initialise(seed)

    # the three projections: one above the other in one matrix, q, k, v, as torch packs them

    @property
    def width(self) -> int:
        """H · D, the width of all queries: embed_dim but for a `head_dim` of its own."""
        return self.num_heads * self.head_dim

    def _rows_of(self, first: int, end: int) -> Projection:
        """Return the projections number `first` to `end` (0 q, 1 k, 2 v), as one."""
        rows = slice(self._ends[first], self._ends[end])
        if self.in_proj_weight is not None:
            weight = self.in_proj_weight.data[rows, :]
        else:
            weight = self._separate()[first].data
        bias = None if self.in_proj_bias is None else self.in_proj_bias.data[rows]
        return Projection(weight, bias)

    def _separate(self) -> list[Parameter]:
        """The weights of q, k and v where kdim or vdim keeps them apart, else none."""
        apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [p for p in apart if p is not None]

    def projections(self) -> Projections:
        """Return (weight, bias) of q, k and v apart, as article 000 has them: views, not copies.

        >>> import numpy as np
        >>> mha = MultiheadAttention(8, 2)
        >>> np.shares_memory(mha.projections().k.weight, mha.in_proj_weight.data)
        True
        """
        return Projections(*(self._rows_of(i, i + 1) for i in range(3)))

    def _project(self, path: str, *inputs: Array) -> tuple[Heads, Backward]:
        """Return q, k and v, heads apart, of (x,), of (x, memory) or of (query, key, value) rows.

        One product makes all that one input gives. `backward(dq, dk, dv)` returns the inputs'
        gradients.
        """
        ends, d = self._ends, self.head_dim
        spans = {1: [(0, 3)], 2: [(0, 1), (1, 3)], 3: [(0, 1), (1, 2), (2, 3)]}[len(inputs)]
        parts, backwards = [], []
        for x, (first, end) in zip(inputs, spans, strict=True):
            y, back = dispatch(ops.linear, x, *self._rows_of(first, end), path=path)
            xp, begin = namespace(y), ends[first]
            for i in range(first, end):
                part = y[:, ends[i] - begin : ends[i + 1] - begin]
                parts.append(xp.reshape(part, (y.shape[0], (ends[i + 1] - ends[i]) // d, d)))
            backwards.append(back)

        def backward(*dheads: Array) -> tuple[Array, ...]:
            given = (side_by_side(*dheads[first:end]) for first, end in spans)
            grads = [back(d) for back, d in zip(backwards, given, strict=True)]
            dinputs, dweights, dbiases = (list(part) for part in zip(*grads, strict=True))
            if self.in_proj_weight is not None:
                self.in_proj_weight.accumulate(_joined(dweights))
            for parameter, dweight in zip(self._separate(), dweights, strict=False):
                parameter.accumulate(dweight)
            if self.in_proj_bias is not None:
                self.in_proj_bias.accumulate(_joined(dbiases))
            return tuple(dinputs)

        q, k, v = parts
        return (q, k, v), backward

    # the one body

    def run(self, x: Array, context: Context) -> Forward:
        """Attend from rows x (T, E) to the rows of the same sequence; backward(dy) -> (dx, None).

        With a cache, to the rows of earlier steps too. Raises `ValueError` when kdim or vdim is
        another width than embed_dim.
        """
        self._check_packed()
        (q, k, v), project_backward = self._project(context.path, x)
        q, k, norm_backward = self._normed(q, k)
        q, k, rotate_backward = self._rotated(q, k, context)
        cu_k, mask, causal = context.cu_seqlens, context.mask, context.causal
        if context.cache is not None:
            k, v, cu_k = context.cache.append(context.path, KeysValues(k, v, cu_k))
            if causal and cu_k[-1] > context.cu_seqlens[-1]:
                mask, causal = like_mask(cached_mask(context.cu_seqlens, cu_k), x), False
        added = self.variant.score_mask(context.cu_seqlens, cu_k, self.num_heads, host_dtype(x))
        if added is not None:
            mask = like(added if mask is None else both(added, to_host(mask)), x)
        mask, bias_backward = self._biased(mask, cu_k, context, q)
        (y, _), attend_backward = self._attend(
            (q, k, v), cu_k, mask, causal, context, bias_backward=bias_backward
        )

        @single_use
        def backward(dy: Array) -> tuple[Array, None]:
            if context.cache is not None:
                raise RuntimeError("a run with a cache keeps nothing for a backward; use no cache")
            dq, dk, dv = attend_backward(dy)
            return project_backward(*norm_backward(*rotate_backward(dq, dk)), dv)[0], None

        return y, backward

    def run_cross(self, x: Array, context: Context) -> Forward:
        """Attend from rows x (T, E) to `context.memory`; backward(dy) -> (dx, dmemory).

        With a cache the memory's keys and values are computed in the first step only.
        """
        self._check_packed()
        memory, cache = context.memory, context.cache
        if memory is None:
            raise ValueError("cross-attention needs context.memory, the rows to attend to")
        kept = None if cache is None else cache.layers.get(context.path)
        if kept is None:
            (q, k, v), project_backward = self._project(context.path, x, memory.rows)
            q, k, norm_backward = self._normed(q, k)
            heads = q, k, v
            if cache is not None:
                cache.append(context.path, KeysValues(k, v, memory.cu_seqlens))
        else:
            q, _ = dispatch(ops.linear, x, *self._rows_of(0, 1), path=context.path)
            q = namespace(q).reshape(q, (q.shape[0], self.num_heads, self.head_dim))
            heads = self._normed(q, kept.k[:0])[0], kept.k, kept.v
        attended = heads, memory.cu_seqlens, memory.mask, memory.causal
        (y, _), attend_backward = self._attend(*attended, context)

        @single_use
        def backward(dy: Array) -> Any:
            dq, dk, dv = attend_backward(dy)
            return project_backward(*norm_backward(dq, dk), dv)

        return y, backward

    def _attend(
        self,
        heads: Heads,
        cu_k: Array,
        mask: Array | None,
        causal: bool,
        context: Context,
        need_weights: bool = False,
        bias_backward: Callable[[Array], None] | None = None,
    ) -> Forward:
        """Attend and project out; return ((y (T, E), weights (N, H, L, S) or None), backward).

        `backward(dy, dweights=None)` returns dq, dk, dv, and gives `bias_backward` the gradient of
        the mask.
        """
        q, k, v = heads
        cu_q = context.cu_seqlens
        q, scale_backward = self._scaled(q, context.path)
        extra = self._extra_keys
        if extra:
            lengths = host.diff(cu_q), host.diff(cu_k)
            k, v, cu_k, extend_backward = self._extend(k, v, cu_k)
            mask, causal = like_mask(with_free_keys(mask, causal, *lengths, extra), q), False
        training = self.training and not context.inference
        dropout = active_dropout(self.dropout, training, context.rng, "attention dropout")
        options: dict[str, Any] = {
            "mask": mask,
            "causal": causal,
            "scale": self.scale,
            "dropout": dropout,
            "rng": context.rng if dropout else None,
        }
        if self.variant.softcap is not None:
            options["softcap"] = self.variant.softcap
        k, v, share_backward = self._shared(k, v)
        kept: list[Any] = []
        # only the reference op has the probabilities and the gradient of a mask
        looking = need_weights or bias_backward is not None
        with observing(partial(_keep, kept)) if looking else nullcontext():
            z, z_backward = dispatch(
                ops.packed_attention, q, k, v, cu_q, cu_k, path=context.path, **options
            )
        xp, weights = namespace(z), kept[0].weights if kept else None
        y, out_backward = self.out_proj.run(
            xp.reshape(z, (z.shape[0], self.width)), joined(context.path, "out_proj")
        )

        def backward(dy: Array, dweights: Array | None = None) -> Heads:
            check_gradient(dy, y.shape)
            dz = xp.reshape(out_backward(dy), z.shape)
            also = () if dweights is None else (dweights,)
            if bias_backward is not None:
                bias_backward(score_gradient(_padded_heads(dz, cu_q), kept[0], *also)[1])
            dq, dk, dv = z_backward(dz, *also)
            dk, dv = share_backward(dk, dv)
            if extra:
                dk, dv = extend_backward(dk, dv)
            return scale_backward(dq), dk, dv

        return (y, weights), backward

    def _normed(self, q: Array, k: Array) -> tuple[Array, Array, Backward]:
        """Normalise every query and key, head by head, where the variant says so."""
        if self.q_norm is None or self.k_norm is None:
            return q, k, both_as_they_are
        (q, q_backward), (k, k_backward) = self.q_norm.run(q), self.k_norm.run(k)
        return q, k, lambda dq, dk: (q_backward(dq), k_backward(dk))

    def _rotated(self, q: Array, k: Array, context: Context) -> tuple[Array, Array, Backward]:
        """Rotate queries and keys by their positions, where the variant says so."""
        rotate = self.variant.rotate
        if rotate is None:
            return q, k, both_as_they_are
        positions = like(context.row_positions(), q)
        (q, q_backward), (k, k_backward) = (
            dispatch(rotate, x, positions, self.variant.angles) for x in (q, k)
        )
        return q, k, lambda dq, dk: (q_backward(dq), k_backward(dk))

    def _biased(
        self, mask: Array | None, cu_k: Array, context: Context, q: Array
    ) -> tuple[Array | None, Callable[[Array], None] | None]:
        """Add the learned scores of distances to a mask; return it and its backward."""
        if self.relative_bias is None or self.variant.relative is None:
            return mask, None
        xp, table = namespace(q), self.relative_bias
        buckets = ops.relative_buckets(
            distances(context.cu_seqlens, cu_k), *self.variant.relative, not context.causal
        )
        rows, table_backward = dispatch(ops.embedding, like(buckets, q), table.data)
        bias = xp.permute_dims(rows, (0, 3, 1, 2))
        if mask is None:
            both_masks = bias
        elif mask.dtype == xp.bool:
            both_masks = xp.where(mask, xp.asarray(-float("inf"), dtype=bias.dtype), bias)
        else:
            both_masks = mask + bias

        def backward(dscores: Array) -> None:
            each = xp.permute_dims(dscores, (0, 2, 3, 1))
            if each.shape[0] != buckets.shape[0]:
                each = xp.sum(each, axis=0, keepdims=True)
            table.accumulate(table_backward(each))

        return both_masks, backward

    def _shared(self, k: Array, v: Array) -> tuple[Array, Array, Backward]:
        """Give every query head its keys and values, where several share one head of them."""
        times = self.num_heads // self.key_value_heads
        if times == 1:
            return k, v, both_as_they_are
        (k, k_backward), (v, v_backward) = (dispatch(ops.share_heads, x, times) for x in (k, v))
        return k, v, lambda dk, dv: (k_backward(dk), v_backward(dv))

    def _scaled(self, q: Array, path: str) -> tuple[Array, Backward]:
        """Put a learned scale into the queries (T, H, D)."""
        if self.head_scale is None:
            return q, lambda dq: dq
        parameter = self.head_scale
        y, back = dispatch(ops.head_scale, q, parameter.data, path=path)

        def backward(dy: Array) -> Array:
            dq, dscale = back(dy)
            parameter.accumulate(dscale)
            return dq

        return y, backward

    @property
    def _extra_keys(self) -> int:
        """How many keys `_extend` appends to every sequence."""
        return (self.bias_k is not None) + self.add_zero_attn

    def _extend(self, k: Array, v: Array, cu_k: Array) -> tuple[Array, Array, Array, Backward]:
        """Append to the keys and values of every sequence the learnt ones, then zeros.

        `add_bias_kv` adds `bias_k` and `bias_v`, `add_zero_attn` a row of zeros.
        """
        xp, rows = namespace(k), k.shape[0]
        learnt = [] if self.bias_k is None or self.bias_v is None else [(self.bias_k, self.bias_v)]
        extra = self._extra_keys
        new = xp.zeros((int(self.add_zero_attn), *k.shape[1:]), dtype=k.dtype, device=k.device)
        one = (1, self.num_heads, self.head_dim)
        own = [[xp.reshape(b.data, one) for b in side] for side in zip(*learnt, strict=True)]
        keys, values = own or ([], [])
        order = followed(cu_k, one_length(len(cu_k) - 1, extra))
        order = host.where(order < rows, order, rows + (order - rows) % extra)
        index = like(order, k)
        k, v = (
            xp.take(xp.concat([x, *added, new]), index, axis=0)
            for x, added in ((k, keys), (v, values))
        )
        kept, biased = (like(host.flatnonzero(at), k) for at in (order < rows, order == rows))

        def backward(dk: Array, dv: Array) -> tuple[Array, Array]:
            for pair in learnt:
                for bias, d in zip(pair, (dk, dv), strict=True):
                    total = xp.sum(xp.take(d, biased, axis=0), axis=0)
                    bias.accumulate(xp.reshape(total, bias.shape))
            return xp.take(dk, kept, axis=0), xp.take(dv, kept, axis=0)

        return k, v, cu_k + one_length(len(cu_k) - 1, extra), backward

    def _check_packed(self) -> None:
        if self.in_proj_weight is None:
            raise ValueError(
                "rows are projected by one matrix, which needs kdim = vdim = embed_dim; use "
                "forward(query, key, value) for other widths"
            )

    # torch's call

    def forward(
        self,
        query: Array,
        key: Array,
        value: Array,
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> Forward:
        """Attend. query (L, N, E), key (S, N, kdim), value (S, N, vdim); batch first if so built;
        without N for one sequence alone.

        key_padding_mask (N, S) and attn_mask (L, S) or (N·H, L, S): bool, True = not allowed, or
        float, added. `is_causal` forbids s > l by itself and applies together with `attn_mask`.
        Weights are those after dropout, (N, L, S), or (N, H, L, S) if not averaged.
        Raises `ValueError` and `TypeError` on shapes and dtypes that do not conform.
        """
        if self.variant != PAPER:
            raise ValueError("torch's call has no variants; call run(rows, context)")
        widths = (self.embed_dim, self.kdim, self.vdim)
        check_attention_inputs(query, key, value, widths, self.batch_first)
        here, there = (Arrangement.of(x, self.batch_first) for x in (query, key))
        sizes = here.batch, self.num_heads, here.length, there.length
        mask = combine(attn_mask, key_padding_mask, *sizes, host_dtype(query))
        rng = here.rng(rng) if self.training and self.dropout else None
        context = Context(cu_seqlens=here.cu_seqlens, rng=rng)
        rows = here.rows(query), there.rows(key), there.rows(value)
        heads, project_backward = self._project("", *rows)
        attended = heads, there.cu_seqlens, like_mask(mask, query), is_causal
        (y, kept), attend_backward = self._attend(*attended, context, need_weights)
        weights: Array | None = None
        if need_weights:
            assert kept is not None
            sizes_of = (here.n, self.num_heads, here.length, there.length + self._extra_keys)
            kept = namespace(kept).reshape(kept, sizes_of)  # of 0 sequences, rows know no lengths
            # backward reads the weights of every head too
            weights = namespace(kept).mean(kept, axis=1) if average_attn_weights else locked(kept)
            weights = weights[0, ...] if here.unbatched else weights
        shape = query.shape

        @single_use
        def backward(dout: Array, dweights: Array | None = None) -> tuple[Array, ...]:
            check_gradient(dout, shape)
            if dweights is not None:
                if weights is None:
                    raise ValueError(
                        "dweights was given, but need_weights=False handed out no weights"
                    )
                check_gradient(dweights, weights.shape)
                dweights = dweights[None, ...] if here.unbatched else dweights
                if average_attn_weights:
                    each = (dweights / self.num_heads)[:, None, ...]
                    dweights = namespace(each).repeat(each, self.num_heads, axis=1)
            dquery, dkey, dvalue = project_backward(*attend_backward(here.rows(dout), dweights))
            return here.undo(dquery), there.undo(dkey), there.undo(dvalue)

        return (here.undo(y), weights), backward


def _keep(kept: list[Any], call: Call, run: Run) -> Result:
    """Observe an attention: keep what the reference op saves."""
    call.keep = True
    result = run(call)
    kept.append(call.saved.attention)
    return result


def both_as_they_are(dq: Array, dk: Array) -> tuple[Array, Array]:
    """Return the two gradients: the backward of a step that was not taken."""
    return dq, dk


def _padded_heads(x: Array, cu_seqlens: Array) -> Array:
    """(T, H, D) -> (N, H, L, D)."""
    return namespace(x).permute_dims(pad_rows(x, cu_seqlens), (0, 2, 1, 3))


def like_mask(mask: Array | None, x: Array) -> Array | None:
    """Return a host mask where `x` is; None stays None."""
    return None if mask is None else like(mask, x)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts)


def side_by_side(*parts: Array) -> Array:
    """Return (T, H, D) arrays as one (T, Σ H·D); no copy when a kernel laid them out so."""
    t, heads, width = parts[0].shape
    n, xp = len(parts), namespace(*parts)
    if n == 1:
        return xp.reshape(parts[0], (t, heads * width))
    base = getattr(parts[0], "base", None)  # NumPy's name for the array that a view is of
    if (
        base is not None
        and getattr(base, "shape", None) == (t, n, heads, width)
        and all(part.base is base for part in parts)
    ):
        return xp.reshape(base, (t, n * heads * width))
    return xp.concat([xp.reshape(part, (t, part.shape[1] * width)) for part in parts], axis=1)
