"""`MultiheadAttention` with torch's arguments; it converts padded arrays to rows."""

from typing import Annotated, Any, Literal

from pellucid.core.array import Array, float32, host, host_dtype, like, namespace, take
from pellucid.core.batch import followed, one_length
from pellucid.core.rng import Rng
from pellucid.core.vjp import check_gradient
from pellucid.nn.arrange import Arrangement, check_attention_inputs
from pellucid.nn.attention import Attention
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context
from pellucid.nn.init import xavier_normal
from pellucid.nn.masks import arranged, with_free_keys
from pellucid.nn.module import Forward, Parameter, single_use
from pellucid.nn.projections import Backward, Heads
from pellucid.ops.rule import Rule


class MultiheadAttention(Attention):
    """Multi-head attention with the arguments of torch.nn.MultiheadAttention, and `scale`.

    `scale` multiplies the scores (default 1/√D, D = embed_dim / num_heads). "learned" makes it a
    parameter, `head_scale` (H,), with one number for each head, initialised to 1/√D
    (`ops.head_scale`). `forward` returns `((output, weights or None), backward)`, and
    `backward(dout, dweights=None)` the gradients of query, key and value.
    A query whose keys are all forbidden gets out_proj.bias (0 without biases) and zero gradient.
    Raises `ValueError` as `AttentionConfig` does, for example when num_heads does not divide
    embed_dim.
    Source: Vaswani et al. 2017, 3.2.2; articles 000 and 004.

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
        seed: int | None = 0,
    ) -> None:
        config = AttentionConfig(
            embed_dim=embed_dim, num_heads=num_heads, kdim=kdim, vdim=vdim, bias=bias,
            dropout=dropout, scale=scale,
        )  # fmt: skip
        super().__init__(config, dtype=dtype, seed=None)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, config.head_width
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.add_zero_attn, self.batch_first = add_zero_attn, batch_first
        self.bias_k = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.bias_v = Parameter((1, 1, embed_dim), xavier_normal, dtype) if add_bias_kv else None
        self.initialise(seed)

    def attend(
        self, heads: Heads, cu_k: Array, rule: Rule, context: Context, **options: Any
    ) -> Forward:
        """Attend as `Attention.attend`, with the extra keys of `add_bias_kv`, `add_zero_attn`.

        cu_k does not count them. With extra keys, raises `ValueError` for a rule that changes
        scores otherwise than by a mask.
        """
        extra = self._extra_keys
        if not extra:
            return super().attend(heads, cu_k, rule, context, **options)
        q, k, v = heads
        rule = with_free_keys(rule, context.cu_seqlens, cu_k, extra, options.get("offset"))
        k, v, cu_k, extend_backward = self._extend(k, v, cu_k)
        attended, attend_backward = super().attend((q, k, v), cu_k, rule, context, **options)

        def backward(*gradients: Array | None) -> Heads:
            dq, dk, dv = attend_backward(*gradients)
            return dq, *extend_backward(dk, dv)

        return attended, backward

    @property
    def _extra_keys(self) -> int:
        """The number of keys that `_extend` appends to every sequence."""
        return (self.bias_k is not None) + self.add_zero_attn

    def _extend(self, k: Array, v: Array, cu_k: Array) -> tuple[Array, Array, Array, Backward]:
        """Append the extra keys and values to every sequence; return (k, v, cu_k, backward).

        `add_bias_kv` adds the learned rows `bias_k` and `bias_v`, `add_zero_attn` a row of zeros.
        """
        xp, rows = namespace(k), k.shape[0]
        learnt = [] if self.bias_k is None or self.bias_v is None else [(self.bias_k, self.bias_v)]
        extra = self._extra_keys
        new = xp.zeros((int(self.add_zero_attn), *k.shape[1:]), dtype=k.dtype, device=k.device)
        one = (1, *k.shape[1:])
        own = [[xp.reshape(b.data, one) for b in side] for side in zip(*learnt, strict=True)]
        keys, values = own or ([], [])
        order = followed(cu_k, one_length(len(cu_k) - 1, extra))
        order = host.where(order < rows, order, rows + (order - rows) % extra)
        index = like(order, k)
        k, v = (
            take(xp.concat([x, *added, new]), index, axis=0)
            for x, added in ((k, keys), (v, values))
        )
        kept, biased = (like(host.flatnonzero(at), k) for at in (order < rows, order == rows))

        def backward(dk: Array, dv: Array) -> tuple[Array, Array]:
            for pair in learnt:
                for bias, d in zip(pair, (dk, dv), strict=True):
                    total = xp.sum(take(d, biased, axis=0), axis=0)
                    bias.accumulate(xp.reshape(total, bias.shape))
            return take(dk, kept, axis=0), take(dv, kept, axis=0)

        return k, v, cu_k + one_length(len(cu_k) - 1, extra), backward

    def forward(
        self,
        query: Annotated[Array, "… E"],
        key: Annotated[Array, "* K"],
        value: Annotated[Array, "* V"],
        key_padding_mask: Array | None = None,
        need_weights: bool = True,
        attn_mask: Array | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        rng: Rng | None = None,
    ) -> Forward:
        """Compute attention; return ((output, weights), backward).

        query: (L, N, E), key: (S, N, kdim), value: (S, N, vdim); (N, L, E) and so on if built with
        batch_first; without the axis N for a single sequence.
        key_padding_mask (N, S) and attn_mask (L, S) or (N·H, L, S): bool, True = not allowed, or
        float, added to the scores; for a single sequence (S,) and (L, S) or (H, L, S). `is_causal`
        forbids key s > query l, in addition to the masks.
        The weights are those after dropout, averaged over heads (N, L, S), or (N, H, L, S) without
        `average_attn_weights`; without the axis N for a single sequence; None without
        `need_weights`. In their shape, `add_bias_kv` and `add_zero_attn` each make S larger by 1.
        Raises `ValueError` and `TypeError` for shapes and dtypes that do not fit, and `ValueError`
        in training with dropout and no `rng`.
        """
        widths = (self.embed_dim, self.kdim, self.vdim)
        check_attention_inputs(query, key, value, widths, self.batch_first)
        here, there = (Arrangement.of(x, self.batch_first) for x in (query, key))
        sizes = here.batch, self.num_heads, here.length, there.length
        rule = arranged(attn_mask, key_padding_mask, is_causal, sizes, host_dtype(query))
        rng = here.rng(rng) if self.training and self.dropout else None
        context = Context(cu_seqlens=here.cu_seqlens, rng=rng)
        rows = here.rows(query), there.rows(key), there.rows(value)
        heads, heads_backward = self.heads(context, *((x, i, i + 1) for i, x in enumerate(rows)))
        wanted: Literal["average", "each"] = "average" if average_attn_weights else "each"
        (y, weights), attend_backward = self.attend(
            heads, there.cu_seqlens, rule, context, weights=wanted if need_weights else None
        )
        if weights is not None:
            head = () if average_attn_weights else (self.num_heads,)
            keys = there.length + self._extra_keys  # with 0 sequences, weights have no lengths
            weights = namespace(weights).reshape(weights, (here.n, *head, here.length, keys))
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
            dquery, dkey, dvalue = heads_backward(*attend_backward(here.rows(dout), dweights))
            return here.undo(dquery), there.undo(dkey), there.undo(dvalue)

        return (here.undo(y), weights), backward
