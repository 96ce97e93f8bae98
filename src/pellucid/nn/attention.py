"""Multi-head attention on rows: project to heads, attend, project back; with its backward."""

from typing import Annotated, Any, Literal

from pellucid import ops
from pellucid.core.array import Array, float32, host, namespace
from pellucid.core.dispatch import dispatch
from pellucid.core.vjp import check_gradient, joined
from pellucid.nn.config import AttentionConfig
from pellucid.nn.context import Context, KeysValues
from pellucid.nn.function import active_dropout
from pellucid.nn.init import constant, normal, zeros
from pellucid.nn.layers import Linear, Norm
from pellucid.nn.module import Forward, Module, Parameter, single_use
from pellucid.nn.projections import Backward, Heads, Projected, norm_rotate, scale, share
from pellucid.ops import rules
from pellucid.ops.rule import Rule
from pellucid.ops.rules.function import Function


class Attention(Projected):
    """Multi-head attention on rows: Concat(head₁, …, head_H) Wᴼ.

    head_i = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V). `run` is self-attention, `run_cross` attention to a
    memory; both return (y, backward). The parameters that torch has have its names. A query whose
    keys are all forbidden gets out_proj.bias (0 without biases) and zero gradient.
    Source: Vaswani et al. 2017, 3.2.2; articles 000 and 004.
    """

    def __init__(
        self, config: AttentionConfig, *, dtype: Any = float32, seed: int | None = 0
    ) -> None:
        self.config = c = config
        self.dropout = c.dropout  # of the attention weights; may be changed later
        super().__init__(c, dtype)
        h, d = c.num_heads, c.head_width
        self.relative_bias: Parameter | None = None
        if c.relative is not None:
            table = (c.relative.buckets, h)
            self.relative_bias = Parameter(table, normal(c.embed_dim**-0.5), dtype)
        self.function = None if c.function is None else Learnt(c.function, h, dtype)
        self.sinks = Parameter((h,), zeros, dtype) if c.sinks else None
        learned = c.scale == "learned"
        self.head_scale = Parameter((h,), constant(d**-0.5), dtype) if learned else None
        self.q_norm, self.k_norm = (
            None if c.qk_norm is None else Norm("rms_norm", d, c.qk_norm, dtype=dtype)
            for _ in range(2)
        )
        self.out_proj = Linear(c.width, c.embed_dim, c.bias, dtype=dtype, seed=None)
        if self.out_proj.bias is not None:
            self.out_proj.bias.init = zeros
        self.initialise(seed)

    def run(
        self, x: Annotated[Array, "T E"], context: Context
    ) -> tuple[Annotated[Array, "T E"], Backward]:
        """Compute self-attention of rows x (T, E); backward(dy) returns (dx, None).

        With a cache, rows attend to those of earlier steps too, and backward raises `RuntimeError`.
        """
        (q, k, v), heads_backward = self.heads(context, (x, 0, 3))
        cu_k, cache, offset = context.cu_seqlens, context.cache, None
        if cache is not None:
            k, v, cu_k = cache.append(context.path, KeysValues(k, v, cu_k))
            offset = host.diff(cu_k) - host.diff(context.cu_seqlens)
        rule = rule_of(self, context.causal, context.rule)
        (y, _), attend_backward = self.attend((q, k, v), cu_k, rule, context, offset=offset)

        @single_use
        def backward(dy: Array) -> tuple[Array, None]:
            if cache is not None:
                raise RuntimeError("a run with a cache keeps nothing for a backward; use no cache")
            return heads_backward(*attend_backward(dy))[0], None

        return y, backward

    def run_cross(
        self, x: Annotated[Array, "T E"], context: Context
    ) -> tuple[Annotated[Array, "T E"], Backward]:
        """Compute attention from rows x (T, E) to `context.memory`; backward(dy) -> (dx, dmemory).

        With a cache, the keys and values of the memory are computed in the first step only, and
        there is no backward. Raises `ValueError` if the context has no memory.
        """
        memory, cache = context.memory, context.cache
        if memory is None:
            raise ValueError("cross-attention needs context.memory, the rows to attend to")
        kept = None if cache is None else cache.layers.get(context.path)
        if kept is not None:
            (q, _, _), heads_backward = self.heads(context, (x, 0, 1), (x[:0], 1, 3))
            k, v = kept.k, kept.v
        else:
            (q, k, v), heads_backward = self.heads(context, (x, 0, 1), (memory.rows, 1, 3))
            if cache is not None:
                cache.append(context.path, KeysValues(k, v, memory.cu_seqlens))
        rule = rule_of(self, False, memory.rule)
        (y, _), attend_backward = self.attend((q, k, v), memory.cu_seqlens, rule, context)

        @single_use
        def backward(dy: Array) -> Any:
            return heads_backward(*attend_backward(dy))

        return y, backward

    def heads(self, context: Context, *inputs: tuple[Array, int, int]) -> tuple[Heads, Backward]:
        """Project the inputs to the heads q, k and v; normalise and rotate q and k if configured.

        `inputs` are those of `project`. Returns ((q, k, v), backward).
        """

        def then(x: Array, counts: tuple[int, int]) -> Forward:
            return norm_rotate(x, counts, (self.q_norm, self.k_norm), self.config, context)

        return self.project(context.path, *inputs, then=then)

    def attend(
        self,
        heads: Heads,
        cu_k: Array,
        rule: Rule,
        context: Context,
        *,
        offset: Array | None = None,
        weights: Literal["average", "each"] | None = None,
    ) -> Forward:
        """Attend with the given heads, project to width E; return ((y, weights), backward).

        `heads` are q, k and v, cu_k the cu_seqlens of k and v, `offset` the number of keys of each
        sequence before its first query. y is (T, E). `weights` selects the weights returned: "each"
        head's (N, H, L, S), their "average" (N, L, S), or None. `backward(dy, dweights=None)`
        returns dq, dk, dv. Raises `ValueError` in training with dropout and no rng.
        """
        (q, k, v), c, path, cu_q = heads, self.config, context.path, context.cu_seqlens
        q, scale_backward = scale(q, self.head_scale, path)
        k, v, share_backward = share(k, v, c.num_heads // c.groups, path)
        training = self.training and not context.inference
        dropout = active_dropout(self.dropout, training, context.rng, "attention dropout")
        options: dict[str, Any] = {
            "rule": rule,
            "offset": offset,
            "scale": 1.0 if isinstance(c.scale, str) else c.scale,
            "dropout": dropout,
            "rng": context.rng if dropout else None,
            "path": path,
        }
        z, z_backward = dispatch(ops.packed_attention, q, k, v, cu_q, cu_k, **options)
        w = w_backward = None
        if weights is not None:
            w, w_backward = dispatch(
                ops.attention_weights, q, k, cu_q, cu_k, average=weights == "average", **options
            )
        xp = namespace(z)
        y, out_backward = self.out_proj.run(
            xp.reshape(z, (z.shape[0], c.width)), joined(path, "out_proj")
        )
        heads_shape, shape = z.shape, y.shape  # backward must not keep z and y themselves
        own = {id(parameter.data): parameter for parameter in learnt(self)}

        def backward(dy: Array, dweights: Array | None = None) -> Heads:
            check_gradient(dy, shape)
            dz = xp.reshape(out_backward(dy), heads_shape)
            from_weights: tuple[Array, ...] = ()
            if dweights is not None and w_backward is not None:
                from_weights = w_backward(dweights)
            dq, dk, dv, *dlearnt = z_backward(dz)
            if from_weights:
                pairs = zip((dq, dk, *dlearnt), from_weights, strict=True)
                dq, dk, *dlearnt = (a + b for a, b in pairs)
            for array, d in zip(rule.parameters, dlearnt, strict=True):
                if id(array) in own:  # parameters of a rule from the context are constants here
                    own[id(array)].accumulate(d)
            return scale_backward(dq), *share_backward(dk, dv)

        return (y, w), backward


class Learnt(Module):
    """The parameters of a score function (`ops.rules.function`), as attributes by name.

    Raises `ValueError` for a name that `Module` has.
    """

    def __init__(self, function: Function, heads: int, dtype: Any) -> None:
        for name, each in function.learnt.items():
            if hasattr(Module, name):
                raise ValueError(f"a parameter cannot be called {name}: a module has that already")
            setattr(self, name, Parameter(each.shape(heads), constant(each.initial), dtype))


def learnt(attention: Attention) -> list[Parameter]:
    """Return the parameters of the attention rule that a layer learns, in the rule's order."""
    functions = [] if attention.function is None else attention.function.parameters()
    every = attention.relative_bias, *functions, attention.sinks
    return [each for each in every if each is not None]


def rule_of(attention: Attention, causal: bool, more: Rule) -> Rule:
    """Build the attention rule from a layer's settings and parameters, followed by `more`.

    `causal`: forbid later keys, and give T5's relative biases to earlier keys only.
    """
    config, table, function = attention.config, attention.relative_bias, attention.function
    rule = rules.causal & config.rule if causal else config.rule
    if table is not None and config.relative is not None:
        rule &= rules.relative(table.data, config.relative.longest, not causal)
    if function is not None and config.function is not None:
        rule &= config.function(*(p.data for p in function.parameters()))
    if attention.sinks is not None:
        rule &= rules.sinks(attention.sinks.data)
    return rule & more
