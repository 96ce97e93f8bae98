"""Multi-head attention with torch's arguments, on padded batches and on packed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid import kernels, ops
from pellucid.core.batch import pad_rows
from pellucid.core.rng import Rng, row_keys
from pellucid.core.vjp import check_gradient, pair_of
from pellucid.nn.function import active_dropout, check_probability
from pellucid.nn.layers import Linear
from pellucid.nn.layout import (
    batch_first,
    check_inputs,
    joined,
    merge_heads,
    rows_to_heads,
    side_by_side,
    split_heads,
    to_every_head,
    undo_batch_first,
)
from pellucid.nn.masks import combine, with_free_keys
from pellucid.nn.module import (
    Array,
    Forward,
    Module,
    Parameter,
    constant,
    locked,
    single_use,
    xavier_normal,
    xavier_uniform,
    zeros,
)
from pellucid.nn.recorder import Recorder, record

Backward = Callable[..., Any]


class Projection(NamedTuple):
    """One of the three maps in front of the heads, as views: writing to them writes the layer's."""

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
    which begins at 1/√D and is put into the queries (`ops.head_scale`).
    `forward` returns `((output, weights or None), backward)` and
    `backward(doutput, dweights=None)` returns the gradients of query, key and value.
    A query with every key forbidden gets out_proj.bias and gives zero gradient.
    Raises `ValueError` when num_heads does not divide embed_dim, and for a scale of another word.
    Source: Vaswani et al. 2017, 3.2.2; seeds 000 and 004.

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
        dtype: Any = np.float32,
        scale: float | Literal["learned"] | None = None,
        seed: int | None = 0,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be positive, got {embed_dim} and {num_heads}"
            )
        if embed_dim % num_heads:
            raise ValueError(
                f"num_heads must divide embed_dim: {embed_dim} is not a multiple of {num_heads}"
            )
        check_probability(dropout)
        if isinstance(scale, str) and scale != "learned":
            raise ValueError(f'scale must be a number, None or "learned", got {scale!r}')
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        self.scale = 1.0 if isinstance(scale, str) else scale
        self.in_proj_weight: Parameter | None = None
        self.q_proj_weight: Parameter | None = None
        self.k_proj_weight: Parameter | None = None
        self.v_proj_weight: Parameter | None = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), xavier_uniform, dtype)
        else:
            self.q_proj_weight = Parameter((embed_dim, embed_dim), xavier_uniform, dtype)
            self.k_proj_weight = Parameter((embed_dim, self.kdim), xavier_uniform, dtype)
            self.v_proj_weight = Parameter((embed_dim, self.vdim), xavier_uniform, dtype)
        self.in_proj_bias = Parameter((3 * embed_dim,), zeros, dtype) if bias else None
        self.bias_k = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.bias_v = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.head_scale: Parameter | None = None
        if isinstance(scale, str):
            self.head_scale = Parameter((num_heads,), constant(self.head_dim**-0.5), dtype)
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, seed=None)
        if self.out_proj.bias is not None:
            self.out_proj.bias.init = zeros
        self.initialise(seed)

    # The three projections. Their weights stand one upon another, q, k, v, as torch packs them.

    def _thirds(self) -> tuple[slice, slice, slice]:
        e = self.embed_dim
        return slice(0, e), slice(e, 2 * e), slice(2 * e, 3 * e)

    def _separate(self) -> list[Parameter]:
        """The weights of q, k and v where kdim or vdim keeps them apart, else none."""
        apart = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return [p for p in apart if p is not None]

    def _rows(self, rows: slice) -> Projection:
        if self.in_proj_weight is not None:
            weight = self.in_proj_weight.data[rows]
        else:
            weight = self._separate()[rows.start // self.embed_dim].data
        return Projection(
            weight, None if self.in_proj_bias is None else self.in_proj_bias.data[rows]
        )

    def projections(self) -> Projections:
        """Return (weight, bias) of q, k and v apart, as seed 000 has them: views, not copies.

        >>> mha = MultiheadAttention(8, 2)
        >>> np.shares_memory(mha.projections().k.weight, mha.in_proj_weight.data)
        True
        """
        return Projections(*(self._rows(rows) for rows in self._thirds()))

    def folded_projections(self) -> Projections:
        """Return the projections with a learned scale inside q's: s_h W_q and s_h b_q.

        Attention over what they make needs `scale` alone, so whoever copies weights to compute by
        other means copies these. Without a learned scale they are `projections`.

        >>> mha = MultiheadAttention(8, 2, scale="learned")
        >>> mha.head_scale.data[:] = 1.0, 3.0
        >>> (mha.folded_projections().q.weight == 3 * mha.projections().q.weight).all(axis=1)
        array([False, False, False, False,  True,  True,  True,  True])
        """
        q, k, v = self.projections()
        if self.head_scale is not None:
            each = np.repeat(self.head_scale.data, self.head_dim)
            q = Projection(each[:, None] * q.weight, None if q.bias is None else each * q.bias)
        return Projections(q, k, v)

    def _scaled(self, q: Array) -> tuple[Array, Backward]:
        """Put a learned scale into queries (…, E); their gradient may come with heads apart."""
        if self.head_scale is None:
            return q, lambda dq: dq
        parameter, apart = self.head_scale, (*q.shape[:-1], self.num_heads, self.head_dim)
        y, saved = ops.head_scale(q.reshape(apart), parameter.data)

        def backward(dq: Array) -> Array:
            d, dscale = ops.head_scale_backward(dq.reshape(apart), saved)
            parameter.accumulate(dscale)
            return np.asarray(d.reshape(dq.shape))

        return y.reshape(q.shape), backward

    def _project(self, *inputs: tuple[Array, slice]) -> tuple[list[Array], Backward]:
        """Multiply each input by its rows of the weights; together the rows are all of them."""
        outputs, saves, backwards = [], [], []
        for x, rows in inputs:
            projection = self._rows(rows)
            linear, linear_backward = kernels.best(ops.linear, x, *projection)
            y, saved = linear(x, *projection)
            outputs.append(y)
            saves.append(saved)
            backwards.append(linear_backward)

        def backward(*douts: Array) -> list[Array]:
            grads = [b(d, s) for b, d, s in zip(backwards, douts, saves, strict=True)]
            dinputs, dweights, dbiases = (list(parts) for parts in zip(*grads, strict=True))
            if self.in_proj_weight is not None:
                self.in_proj_weight.accumulate(joined(dweights))
            for parameter, dweight in zip(self._separate(), dweights, strict=False):
                parameter.accumulate(dweight)
            if self.in_proj_bias is not None:
                self.in_proj_bias.accumulate(joined(dbiases))
            return dinputs

        return outputs, backward

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
        recorder: Recorder | None = None,
    ) -> Forward:
        """Attend. query (L, N, E), key (S, N, kdim), value (S, N, vdim); batch first if so built;
        without N for one sequence alone.

        key_padding_mask (N, S) and attn_mask (L, S) or (N·H, L, S): bool, True = not allowed, or
        float, added. `is_causal` forbids s > l by itself and applies together with `attn_mask`.
        Weights are those after dropout, (N, L, S), or (N, H, L, S) if not averaged.
        Raises `ValueError` and `TypeError` on shapes and dtypes that do not conform.
        """
        check_inputs(query, key, value, (self.embed_dim, self.kdim, self.vdim), self.batch_first)
        unbatched, shape = query.ndim == 2, query.shape
        first = self.batch_first and not unbatched
        query, key, value = (batch_first(x, first, unbatched) for x in (query, key, value))
        n, length, source_length = *query.shape[:2], key.shape[1]
        sizes = (None if unbatched else n, self.num_heads, length, source_length)
        mask = combine(attn_mask, key_padding_mask, *sizes, query.dtype)
        parts = zip((query, key, value), self._thirds(), strict=True)
        (q, k, v), project_backward = self._project(*parts)
        unscaled = q
        q, scale_backward = self._scaled(q)
        k, v, extend_backward = self._extend(k, v)
        extra = k.shape[1] - source_length  # keys that every query may attend to
        if extra:
            mask = with_free_keys(mask, is_causal, length, source_length, extra)
        args = tuple(split_heads(x, self.num_heads) for x in (q, k, v))
        dropout = self._active_dropout(rng)
        options = {
            "mask": mask,
            "causal": is_causal and not extra,
            "scale": self.scale,
            "dropout": dropout,
            "rng": self._name_rows(rng, n, length, first, unbatched) if dropout else None,
        }
        plain = need_weights or recorder is not None  # only the plain pair has the weights
        attend, attend_backward = (
            pair_of(ops.attention) if plain else kernels.best(ops.attention, *args, **options)
        )
        z, saved = attend(*args, **options)
        out, out_backward = self.out_proj.forward(merge_heads(z))
        weights = None
        if need_weights:
            kept = saved.weights  # backward reads them too
            weights = kept.mean(axis=1) if average_attn_weights else locked(kept)
            weights = weights[0] if unbatched else weights
        seen = None
        if recorder is not None:
            before = self._before_scale(split_heads(unscaled, self.num_heads))
            seen = record(recorder, saved, is_causal, before)

        @single_use
        def backward(dout: Array, dweights: Array | None = None) -> tuple[Array, ...]:
            check_gradient(dout, shape)
            dz = split_heads(out_backward(batch_first(dout, first, unbatched)), self.num_heads)
            also: tuple[Array, ...] = ()
            if dweights is not None:
                if weights is None:
                    raise ValueError(
                        "dweights was given, but need_weights=False handed out no weights"
                    )
                check_gradient(dweights, weights.shape)
                also = (to_every_head(dweights, self.num_heads, average_attn_weights, unbatched),)
            if seen is not None:
                seen.take_gradients(dz, saved, *also)
            dq, dk, dv = attend_backward(dz, saved, *also)
            dk, dv = extend_backward(merge_heads(dk), merge_heads(dv))
            grads = project_backward(scale_backward(merge_heads(dq)), dk, dv)
            return tuple(undo_batch_first(d, first, unbatched) for d in grads)

        return (undo_batch_first(out, first, unbatched), weights), backward

    # the packed call

    def forward_packed(
        self,
        x: Array,
        memory: Array | None,
        cu_q: Array,
        cu_k: Array,
        *,
        is_causal: bool = False,
        rng: Rng | None = None,
        recorder: Recorder | None = None,
    ) -> Forward:
        """Attend from packed rows x (T, E) to themselves (`memory` None) or to memory (U, E).

        Sequence n of x looks at sequence n of memory only. Returns (out (T, E), backward);
        backward(dout) returns dx, or (dx, dmemory). One product makes q, k and v together, which
        asks for kdim = vdim = embed_dim and neither add_bias_kv nor add_zero_attn (`ValueError`).
        """
        if self.in_proj_weight is None or self.bias_k is not None or self.add_zero_attn:
            raise ValueError(
                "packed attention needs kdim = vdim = embed_dim, add_bias_kv=False and "
                "add_zero_attn=False; use forward for the others"
            )
        e = self.embed_dim
        if memory is None:
            (qkv,), project_backward = self._project((x, slice(0, 3 * e)))
            q, k, v = (qkv[:, rows] for rows in self._thirds())
        else:
            (q, kv), project_backward = self._project((x, slice(0, e)), (memory, slice(e, 3 * e)))
            k, v = kv[:, :e], kv[:, e:]
        unscaled = q
        q, scale_backward = self._scaled(q)
        args = (*(rows_to_heads(y, self.num_heads) for y in (q, k, v)), cu_q, cu_k)
        options = {
            "causal": is_causal,
            "scale": self.scale,
            "dropout": self._active_dropout(rng),
            "rng": rng,
        }
        attend, attend_backward = (
            kernels.best(ops.packed_attention, *args, **options)
            if recorder is None
            else pair_of(ops.packed_attention)
        )
        z, saved = attend(*args, **options)
        out, out_backward = self.out_proj.forward(z.reshape(-1, e))
        seen = None
        if recorder is not None:
            rows = pad_rows(rows_to_heads(unscaled, self.num_heads), cu_q)
            before = self._before_scale(rows.transpose(0, 2, 1, 3))
            seen = record(recorder, saved.attention, is_causal, before)

        @single_use
        def backward(dout: Array) -> Any:
            dz = rows_to_heads(out_backward(dout), self.num_heads)
            if seen is not None:
                seen.take_gradients(pad_rows(dz, cu_q).transpose(0, 2, 1, 3), saved.attention)
            dq, dk, dv = attend_backward(dz, saved)
            dq = scale_backward(dq)
            if memory is None:
                return project_backward(side_by_side(dq, dk, dv))[0]
            return tuple(project_backward(dq.reshape(-1, e), side_by_side(dk, dv)))

        return out, backward

    # parts

    def _before_scale(self, q: Array) -> tuple[Array, Array] | None:
        """Return the queries before a learned scale, and it, for the recorder."""
        return None if self.head_scale is None else (q, self.head_scale.data.copy())

    def _active_dropout(self, rng: Rng | None) -> float:
        return active_dropout(self.dropout, self.training, rng, "attention dropout")

    def _name_rows(
        self, rng: Rng | None, n: int, length: int, first: bool, unbatched: bool
    ) -> Rng | None:
        """Name the queries, (N, 1, L), as the caller did or by their place in the batch."""
        if rng is None:
            return None
        if rng.rows is None:
            rows = row_keys(np.arange(n)[:, None], np.arange(length))
        else:
            shape = (length,) if unbatched else (n, length) if first else (length, n)
            rows = batch_first(rng.row_names(shape), first, unbatched)
        return rng.at(rows[:, None, :])

    def _extend(self, k: Array, v: Array) -> tuple[Array, Array, Backward]:
        """Append the learnt key and value (`add_bias_kv`), then zeros (`add_zero_attn`)."""
        source_length = k.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            row = (k.shape[0], 1, k.shape[2])
            k = np.concatenate([k, np.broadcast_to(self.bias_k.data, row)], axis=1)
            v = np.concatenate([v, np.broadcast_to(self.bias_v.data, row)], axis=1)
        if self.add_zero_attn:
            zero = np.zeros((k.shape[0], 1, k.shape[2]), k.dtype)
            k, v = np.concatenate([k, zero], axis=1), np.concatenate([v, zero], axis=1)

        def backward(dk: Array, dv: Array) -> tuple[Array, Array]:
            if self.bias_k is not None and self.bias_v is not None:
                at = slice(source_length, source_length + 1)
                self.bias_k.accumulate(dk[:, at].sum(axis=0, keepdims=True))
                self.bias_v.accumulate(dv[:, at].sum(axis=0, keepdims=True))
            return dk[:, :source_length], dv[:, :source_length]

        return k, v, backward
