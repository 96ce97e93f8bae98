"""Parts of a Transformer layer: sublayers, each inside a residual step with its norm.

A layer is a list of blocks that run in order. Variants are other lists: `models.layers` puts more
feed-forward networks before or after attention, the exercise of article 004.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pellucid import ops
from pellucid.core.array import Array, float32
from pellucid.core.dispatch import dispatch
from pellucid.core.rng import Rng
from pellucid.core.vjp import Backward, Pair, check_gradient, joined, part
from pellucid.nn import functional
from pellucid.nn.attention import Attention
from pellucid.nn.context import Context
from pellucid.nn.differences import rule
from pellucid.nn.function import Function, active_dropout
from pellucid.nn.layers import Dropout, LayerNorm, Linear, Norm
from pellucid.nn.module import Forward, Module, learning, single_use
from pellucid.nn.multihead_attention import MultiheadAttention
from pellucid.ops.activations import ACTIVATIONS

Sublayer = Callable[[Array, Context], tuple[Array, Callable[[Array], tuple[Array, Array | None]]]]
"""(rows, context) -> (y, backward); backward(dy) -> (dx, dmemory), dmemory None if unused."""


class FeedForward(NamedTuple):
    """The position-wise feed-forward network: linear2(dropout(activation(linear1(x)))).

    A named activation runs fused with bias and dropout (`ops.bias_act_dropout`), an activation that
    is a module runs separately. A gated activation halves the width, so linear1 makes 2 F features
    for the F that linear2 reads. Source: Vaswani et al. 2017, 3.3; article 004.
    """

    linear1: Linear
    activation: str | Module
    dropout: Dropout
    linear2: Linear

    def run(
        self, x: Annotated[Array, "T E"], context: Context
    ) -> tuple[Annotated[Array, "T E"], Backward]:
        """Run the network on rows x (T, E); return (y, backward); backward(dy) gives (dx, None)."""
        if isinstance(self.activation, Module):
            return self._by_module(self.activation, x, context)
        (weight, bias), path = self.linear1.arrays(), context.path
        h, linear_backward = learning(
            (self.linear1.weight, None), *dispatch(ops.linear, x, weight, path=path)
        )  # 1
        p, rng = dropout_of(self.dropout, context)
        options: dict[str, Any] = {"activation": self.activation, "dropout": p, "rng": rng}
        a, act_backward = learning(
            (self.linear1.bias,), *dispatch(ops.bias_act_dropout, h, bias, path=path, **options)
        )  # 2
        y, out_backward = self.linear2.run(a, path)  # 3

        def backward(dy: Array) -> tuple[Array, None]:
            dh = act_backward(out_backward(dy))  # 3, 2
            dx = linear_backward(dh)  # 1
            return dx, None

        return y, backward

    def _by_module(self, activation: Module, x: Array, context: Context) -> Forward:
        """Run the network with an activation that is a module."""
        h, in_backward = self.linear1.run(x, context.path)  # 1
        a, act_backward = activation.forward(h)  # 2
        d, drop_backward = dispatch(
            ops.dropout, a, *dropout_of(self.dropout, context), path=context.path
        )  # 3
        y, out_backward = self.linear2.run(d, context.path)  # 4

        def backward(dy: Array) -> tuple[Array, None]:
            return in_backward(act_backward(drop_backward(out_backward(dy)))), None

        return y, backward


class Block(NamedTuple):
    """One residual step: a sublayer with the norm and the dropout around it."""

    name: str
    """The layer's attribute that holds `body`; recorders and caches use it as the name."""
    body: Attention | FeedForward
    norm: Norm
    dropout: Dropout
    memory: bool = False
    """Whether this is cross-attention, to `context.memory`."""

    @property
    def sublayer(self) -> Sublayer:
        """The function that the residual step wraps, between the norm and the dropout."""
        if self.memory and isinstance(self.body, Attention):
            return self.body.run_cross
        return self.body.run


def run_blocks(
    x: Annotated[Array, "T E"], blocks: Sequence[Block], norm_first: bool, context: Context
) -> tuple[Annotated[Array, "T E"], Backward]:
    """Pass rows through the blocks; `backward(dy)` returns (dx, dmemory), dmemory None if unused.

    norm_first:  x ← x + dropout(sublayer(norm(x)))      Xiong et al. 2020
    otherwise:   x ← norm(x + dropout(sublayer(x)))      Vaswani et al. 2017, 3.1; article 001
    """
    step = _pre_norm if norm_first else _post_norm
    backwards, shape = [], x.shape
    for i, block in enumerate(blocks):
        within, path = context.child(block.name, site=i), joined(context.path, str(i))
        x, back = part(step, x, block, within, path, path=path)
        backwards.append(back)

    @single_use
    def backward(dy: Array) -> tuple[Array, Array | None]:
        check_gradient(dy, shape)
        return unwind(backwards, dy)

    return x, backward


def unwind(backwards: list[Callable[..., Any]], dy: Array) -> tuple[Array, Array | None]:
    """Run the backwards in reverse order; return (dx, dmemory), dmemory summed over all of them.

    dmemory is None if none of them uses a memory. `backwards` is emptied, which frees the arrays.
    """
    dmemory: Array | None = None
    while backwards:
        dy, more = backwards.pop()(dy)
        if more is not None:
            dmemory = more if dmemory is None else dmemory + more
    return dy, dmemory


def _post_norm(x: Array, block: Block, context: Context, path: str) -> Forward:
    """Compute norm(x + dropout(sublayer(x)))."""
    inner = context.child("", site=0)
    y, sublayer_backward = part(block.sublayer, x, inner, path=f"{path}.sublayer")  # 1
    norm = block.norm
    p, rng = dropout_of(block.dropout, context)
    if rng is not None:
        rng = rng.fold(1)
    named: dict[str, Any] = {"norm": norm.kind, "eps": norm.eps, "path": path}
    added = dispatch(ops.add_dropout_norm, y, x, *norm.arrays(), dropout=p, rng=rng, **named)
    z, add_norm_backward = learning((norm.weight, norm.bias), *added)  # 2

    def backward(dz: Array) -> tuple[Array, Array | None]:
        dy, dx = add_norm_backward(dz)  # 2
        through, dmemory = sublayer_backward(dy)  # 1
        return dx + through, dmemory

    return z, backward


def _pre_norm(x: Array, block: Block, context: Context, path: str) -> Forward:
    """Compute x + dropout(sublayer(norm(x)))."""
    n, norm_backward = block.norm.run(x, path)  # 1
    inner = context.child("", site=0)
    y, sublayer_backward = part(block.sublayer, n, inner, path=f"{path}.sublayer")  # 2
    p, rng = dropout_of(block.dropout, context)
    if p and rng is not None:
        y, drop_backward = dispatch(ops.dropout, y, p, rng.fold(1), path=path)  # 3
    else:
        drop_backward = _unchanged
    z = x + y

    def backward(dz: Array) -> tuple[Array, Array | None]:
        dn, dmemory = sublayer_backward(drop_backward(dz))  # 3, 2
        return dz + norm_backward(dn), dmemory  # 1

    return z, backward


def _unchanged(dy: Array) -> Array:
    return dy


def dropout_of(dropout: Dropout, context: Context) -> tuple[float, Rng | None]:
    """Return the probability that a dropout layer applies now (0 in evaluation), and the rng.

    Raises `ValueError` if that probability is not 0 and the context has no rng.
    """
    training = dropout.training and not context.inference
    return active_dropout(dropout.p, training, context.rng), context.rng


class TransformerLayer(Module):
    """Base class of encoder and decoder layers; their `blocks` define the order of the parts.

    The arguments are those of `TransformerEncoderLayer`; with seed = None nothing is drawn.
    """

    attends_to_memory: ClassVar[bool] = False
    activation: str | Module
    self_attn: Attention
    multihead_attn: Attention
    norm1: Norm
    norm2: Norm
    norm3: Norm
    dropout1: Dropout
    dropout2: Dropout
    dropout3: Dropout

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: Any = float32,
        scale: float | Literal["learned"] | None = None,
        seed: int | None = 0,
    ) -> None:
        self.norm_first, self.batch_first = norm_first, batch_first
        attention = {"batch_first": batch_first, "dtype": dtype, "scale": scale, "seed": None}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, **attention)
        if self.attends_to_memory:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, **attention)
        known = as_activation(activation)
        gates = gates_of(known)
        self.linear1 = Linear(d_model, gates * dim_feedforward, bias, dtype=dtype, seed=None)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype, seed=None)
        steps = range(1, 4 if self.attends_to_memory else 3)
        for i in steps:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype))
        for i in steps:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = known
        self.initialise(seed)

    def feed_forward(self) -> FeedForward:
        """Return the layer's feed-forward network."""
        return FeedForward(self.linear1, self.activation, self.dropout, self.linear2)

    def blocks(self) -> list[Block]:
        """Return the residual steps in order; subclasses override it, this raises `TypeError`."""
        raise TypeError(f"{type(self).__name__} has no blocks; define them")

    def run(
        self, x: Annotated[Array, "T E"], context: Context
    ) -> tuple[Annotated[Array, "T E"], Backward]:
        """Run the layer's blocks on rows x (T, E); return (y, backward).

        backward(dy) returns (dx, dmemory), dmemory None if no block uses a memory.
        """
        return run_blocks(x, self.blocks(), self.norm_first, context)


def gates_of(activation: str | Module) -> int:
    """Return an activation's input features per output feature: 2 if it is gated, else 1."""
    return ACTIVATIONS[activation].gates if isinstance(activation, str) else 1


def as_activation(activation: Any) -> str | Module:
    """Convert the `activation` argument of a layer to a name in `ACTIVATIONS` or to a module.

    A function of `nn.functional` becomes its name if `ACTIVATIONS` has that, else a module, as a
    `pair` does. Raises `ValueError` for an unknown name, `TypeError` for a plain callable, because
    backward needs its derivative too.
    """
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(sorted(ACTIVATIONS))}, a function of "
                "pellucid.nn.functional, a Module, or pellucid.pair(f, f_backward); got "
                f"{activation!r}"
            )
        return activation
    if isinstance(activation, Module):
        return activation
    if isinstance(activation, Function):
        named = getattr(functional, activation.__name__, None) is activation
        known = named and activation.__name__ in ACTIVATIONS
        return activation.__name__ if known else Elementwise(activation)
    if isinstance(activation, Pair):
        return Elementwise(activation)
    raise TypeError(f"activation {activation!r} has no derivative. {rule('activation')}")


class Elementwise(Module):
    """A layer without parameters that applies an elementwise function and its derivative.

    The output of a `pair` is returned as it is, never made read-only.
    """

    def __init__(self, f: Function[Any] | Pair) -> None:
        self.f = f

    def forward(self, input: Annotated[Array, "…"]) -> tuple[Annotated[Array, "…"], Backward]:
        """Apply the function; return (y, backward)."""
        if isinstance(self.f, Function):
            return self.f.forward(input)
        (y, saved), derivative = self.f.forward(input), self.f.backward
        return y, single_use(lambda dy: derivative(dy, saved))
