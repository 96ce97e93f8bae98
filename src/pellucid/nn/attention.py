"""Multi-head attention with torch's arguments, on padded batches and on packed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid import kernels, ops
from pellucid.nn.layers import Linear
from pellucid.nn.masks import combine
from pellucid.nn.module import (
    Array,
    Forward,
    Module,
    Parameter,
    way_back,
    xavier_normal,
    xavier_uniform,
    zeros,
)
from pellucid.nn.recorder import AttentionMap, Recorder
from pellucid.ops.attention import score_gradient
from pellucid.packed import pad_rows
from pellucid.pair import pair_of
from pellucid.rng import Rng, row_keys

Backward = Callable[..., Any]


class MultiheadAttention(Module):
    """Concat(head₁, …, head_H) Wᴼ with head_i = Attention(Q Wᵢ, K Wᵢ, V Wᵢ).

    torch.nn.MultiheadAttention's arguments, and one of ours: `scale` multiplies the scores
    (default 1/√D). `forward` returns `((output, weights or None), backward)` and
    `backward(doutput, dweights=None)` returns the gradients of query, key and value.
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
        scale: float | None = None,
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
        if not 0.0 <= dropout <= 1.0:
            raise ValueError(f"dropout must lie between 0 and 1, got {dropout}")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.head_dim = embed_dim // num_heads
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn, self.batch_first, self.scale = add_zero_attn, batch_first, scale
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.in_proj_weight: Parameter | None = None
        self.q_proj_weight: Parameter | None = None
        self.k_proj_weight: Parameter | None = None
        self.v_proj_weight: Parameter | None = None
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter((3 * embed_dim, embed_dim), xavier_uniform, dtype)
        else:
            self.q_proj_weight = Parameter((embed_dim, embed_dim), xavier_uniform, dtype)
            self.k_proj_weight = Parameter((embed_dim, self.kdim), xavier_uniform, dtype)
            self.v_proj_weight = Parameter((embed_dim, self.vdim), xavier_uniform, dtype)
        self.in_proj_bias = Parameter((3 * embed_dim,), zeros, dtype) if bias else None
        self.bias_k = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.bias_v = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype=dtype, seed=None)
        if self.out_proj.bias is not None:
            self.out_proj.bias.init = zeros
        self.initialise(seed)

    # The three projections

    def _blocks(self) -> tuple[slice, slice, slice]:
        e = self.embed_dim
        return slice(0, e), slice(e, 2 * e), slice(2 * e, 3 * e)

    def projections(self) -> tuple[tuple[Array, Array | None], ...]:
        """Return (weight, bias) of q, k and v apart, as seed 000 has them: views, not copies."""
        if self.in_proj_weight is not None:
            weights = [self.in_proj_weight.data[rows] for rows in self._blocks()]
        else:
            assert self.q_proj_weight and self.k_proj_weight and self.v_proj_weight
            weights = [p.data for p in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)]
        bias = self.in_proj_bias
        biases = [None if bias is None else bias.data[rows] for rows in self._blocks()]
        return tuple(zip(weights, biases, strict=True))

    def _accumulate(self, dweights: list[Array], dbiases: list[Array | None]) -> None:
        if self.in_proj_weight is not None:
            self.in_proj_weight.accumulate(_joined(dweights))
        else:
            assert self.q_proj_weight and self.k_proj_weight and self.v_proj_weight
            separate = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            for parameter, dweight in zip(separate, dweights, strict=True):
                parameter.accumulate(dweight)
        if self.in_proj_bias is not None:
            self.in_proj_bias.accumulate(_joined([d for d in dbiases if d is not None]))

    def _project(self, *inputs: Array) -> tuple[list[Array], Backward]:
        """Project query, key and value, each by its own part of the weights."""
        outputs, saves, backwards = [], [], []
        for x, (weight, bias) in zip(inputs, self.projections(), strict=True):
            linear, linear_backward = kernels.best(ops.linear, x, weight, bias)
            y, saved = linear(x, weight, bias)
            outputs.append(y)
            saves.append(saved)
            backwards.append(linear_backward)

        def backward(*douts: Array) -> list[Array]:
            grads = [b(d, s) for b, d, s in zip(backwards, douts, saves, strict=True)]
            self._accumulate([g[1] for g in grads], [g[2] for g in grads])
            return [g[0] for g in grads]

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
        unbatched = query.ndim == 2
        first = 0 if self.batch_first or unbatched else 1
        if rng is not None and rng.rows is not None:
            rng = rng.at(_batch_first(rng.rows, first, unbatched))
        query, key, value = (_batch_first(x, first, unbatched) for x in (query, key, value))
        if unbatched and key_padding_mask is not None:
            key_padding_mask = np.asarray(key_padding_mask)[None]
        self._check(query, key, value)
        n, length, source_length = *query.shape[:2], key.shape[1]
        mask = combine(attn_mask, key_padding_mask, n, self.num_heads, length, source_length)

        (q, k, v), project_backward = self._project(query, key, value)
        (k, v), extend_backward = self._extend(k, v)
        extra = k.shape[1] - source_length  # keys that every query may attend to
        if extra and (mask is not None or is_causal):
            mask = _with_free_keys(mask, is_causal, length, source_length, extra)
            is_causal = False
        if mask is not None and mask.dtype != np.bool_:
            mask = mask.astype(query.dtype)
        p = self._active_dropout(rng)
        if p and rng is not None:
            rows = rng.rows
            if rows is None:
                rows = row_keys(np.arange(n)[:, None], np.arange(length))
            rng = rng.at(rows[:, None, :])
        args = (self._split(q), self._split(k), self._split(v))
        options = {
            "mask": mask, "causal": is_causal, "scale": self.scale, "dropout": p, "rng": rng
        }  # fmt: skip
        wants_weights = need_weights or recorder is not None
        attend, attend_backward = (
            pair_of(ops.attention)
            if wants_weights
            else kernels.best(ops.attention, *args, **options)
        )
        heads, saved = attend(*args, **options)
        merged = self._merge(heads)
        out, out_backward = self.out_proj.forward(merged)
        weights = None
        if need_weights:
            weights = saved.weights.mean(axis=1) if average_attn_weights else saved.weights
            weights = weights[0] if unbatched else weights
        _record(recorder, saved)

        @way_back
        def backward(dout: Array, dweights: Array | None = None) -> tuple[Array, ...]:
            dmerged = out_backward(_batch_first(dout, first, unbatched))
            dheads = self._split(dmerged)
            extra_args = ()
            if dweights is not None:
                extra_args = (self._spread(dweights, average_attn_weights, unbatched),)
            _record_gradient(recorder, dheads, saved, *extra_args)
            dq, dk, dv = attend_backward(dheads, saved, *extra_args)
            dk, dv = extend_backward(self._merge(dk), self._merge(dv))
            grads = project_backward(self._merge(dq), dk, dv)
            return tuple(_undo_batch_first(d, first, unbatched) for d in grads)

        return (_undo_batch_first(out, first, unbatched), weights), backward

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
        whole = (self.in_proj_weight, self.in_proj_bias)
        if memory is None:
            (qkv,), project_backward = self._project_rows((x, slice(0, 3 * e)), whole=whole)
            q, k, v = (qkv[:, rows] for rows in self._blocks())
        else:
            (q, kv), project_backward = self._project_rows(
                (x, slice(0, e)), (memory, slice(e, 3 * e)), whole=whole
            )
            k, v = kv[:, :e], kv[:, e:]
        args = (*(self._heads(y) for y in (q, k, v)), cu_q, cu_k)
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
        heads, saved = attend(*args, **options)
        out, out_backward = self.out_proj.forward(heads.reshape(-1, e))
        if recorder is not None:
            _record(recorder, saved.attention)

        @way_back
        def backward(dout: Array) -> Any:
            dheads = self._heads(out_backward(dout))
            if recorder is not None:
                padded = pad_rows(dheads, cu_q).transpose(0, 2, 1, 3)
                _record_gradient(recorder, padded, saved.attention)
            dq, dk, dv = attend_backward(dheads, saved)
            if memory is None:
                return project_backward(_side_by_side(dq, dk, dv))[0]
            return tuple(project_backward(dq.reshape(-1, e), _side_by_side(dk, dv)))

        return out, backward

    def _project_rows(
        self,
        *inputs: tuple[Array, slice],
        whole: tuple[Parameter, Parameter | None],
    ) -> tuple[list[Array], Backward]:
        """Multiply each input by its rows of the packed weights."""
        weight, bias = whole
        outputs, saves, backwards = [], [], []
        for x, rows in inputs:
            args = (x, weight.data[rows], None if bias is None else bias.data[rows])
            linear, linear_backward = kernels.best(ops.linear, *args)
            y, saved = linear(*args)
            outputs.append(y)
            saves.append(saved)
            backwards.append(linear_backward)

        def backward(*douts: Array) -> list[Array]:
            grads = [b(d, s) for b, d, s in zip(backwards, douts, saves, strict=True)]
            weight.accumulate(_joined([g[1] for g in grads]))
            if bias is not None:
                bias.accumulate(_joined([g[2] for g in grads]))
            return [g[0] for g in grads]

        return outputs, backward

    # parts

    def _active_dropout(self, rng: Rng | None) -> float:
        if not self.training or self.dropout == 0.0:
            return 0.0
        if rng is None:
            raise ValueError(
                f"attention dropout of {self.dropout} while training needs randomness: pass "
                "rng=pellucid.Rng(seed) to forward, or call .eval()"
            )
        return self.dropout

    def _heads(self, rows: Array) -> Array:
        return rows.reshape(rows.shape[0], self.num_heads, -1)

    def _split(self, x: Array) -> Array:
        """(N, L, E) -> (N, H, L, D)."""
        return x.reshape(*x.shape[:2], self.num_heads, -1).transpose(0, 2, 1, 3)

    def _merge(self, heads: Array) -> Array:
        """(N, H, L, D) -> (N, L, E)."""
        n, _, length, _ = heads.shape
        return heads.transpose(0, 2, 1, 3).reshape(n, length, -1)

    def _extend(self, k: Array, v: Array) -> tuple[tuple[Array, Array], Backward]:
        """Append the learnt key and value (`add_bias_kv`), then zeros (`add_zero_attn`)."""
        source_length = k.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            row = (k.shape[0], 1, k.shape[2])
            k = np.concatenate([k, np.broadcast_to(self.bias_k.data, row)], axis=1)
            v = np.concatenate([v, np.broadcast_to(self.bias_v.data, row)], axis=1)
        if self.add_zero_attn:
            zero = np.zeros_like(k[:, :1])
            k, v = np.concatenate([k, zero], axis=1), np.concatenate([v, zero], axis=1)

        def backward(dk: Array, dv: Array) -> tuple[Array, Array]:
            if self.bias_k is not None and self.bias_v is not None:
                at = slice(source_length, source_length + 1)
                self.bias_k.accumulate(dk[:, at].sum(axis=0, keepdims=True))
                self.bias_v.accumulate(dv[:, at].sum(axis=0, keepdims=True))
            return dk[:, :source_length], dv[:, :source_length]

        return (k, v), backward

    def _spread(self, dweights: Array, averaged: bool, unbatched: bool) -> Array:
        """Return the gradient of the weights of every head from that of what was handed out."""
        dweights = dweights[None] if unbatched else dweights
        if not averaged:
            return dweights
        return np.repeat(dweights[:, None] / self.num_heads, self.num_heads, axis=1)

    def _check(self, query: Array, key: Array, value: Array) -> None:
        widths = (self.embed_dim, self.kdim, self.vdim)
        for name, x, width in zip(("query", "key", "value"), (query, key, value), widths, strict=True):
            if x.ndim != 3:
                raise ValueError(
                    f"{name} must have 3 axes with a batch or 2 without, like query; got "
                    f"{x.ndim} axes, batch axis included"
                )
            if x.shape[2] != width:
                raise ValueError(f"{name} must be {width} wide, got width {x.shape[2]}")
        if key.shape[:2] != value.shape[:2] or key.shape[0] != query.shape[0]:
            raise ValueError(
                f"query, key and value must have the same batch, key and value the same length; "
                f"got (N, length): query {query.shape[:2]}, key {key.shape[:2]}, value "
                f"{value.shape[:2]} (batch_first={self.batch_first})"
            )


def _joined(parts: list[Any]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _side_by_side(*parts: Array) -> Array:
    """Return (T, H, D) arrays as one (T, n·H·D); no copy when a kernel laid them out so."""
    base, n = parts[0].base, len(parts)
    t, heads, width = parts[0].shape
    if (
        isinstance(base, np.ndarray)
        and base.shape == (t, n, heads, width)
        and all(p.base is base for p in parts)
    ):
        return base.reshape(t, -1)
    return np.concatenate([p.reshape(t, -1) for p in parts], axis=1)


def _batch_first(x: Array, first: int, unbatched: bool) -> Array:
    if unbatched:
        return x[None]
    return x.swapaxes(0, 1) if first else x


def _undo_batch_first(x: Array, first: int, unbatched: bool) -> Array:
    if unbatched:
        return x[0]
    return x.swapaxes(0, 1) if first else x


def _with_free_keys(
    mask: Array | None, is_causal: bool, length: int, source_length: int, extra: int
) -> Array:
    """Return mask and causality as one mask over S + extra keys, the extra ones allowed to all."""
    causal = ops.causal_mask(length, source_length)
    if mask is None:
        mask = causal
    elif is_causal:
        mask = mask | causal if mask.dtype == np.bool_ else np.where(causal, -np.inf, mask)
    pad = [(0, 0)] * (mask.ndim - 1) + [(0, extra)]
    return np.pad(mask, pad)


def _record(recorder: Recorder | None, saved: Any) -> None:
    if recorder is not None:
        recorder.maps[recorder.prefix] = AttentionMap(saved.probabilities, saved.weights)


def _record_gradient(recorder: Recorder | None, dheads: Array, saved: Any, *dweights: Array) -> None:
    if recorder is not None:
        seen = recorder.maps[recorder.prefix]
        seen.dweights, seen.dscores = score_gradient(dheads, saved, *dweights)
