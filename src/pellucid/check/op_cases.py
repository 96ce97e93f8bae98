"""The rows of the table for `ops`. Every op needs one; a test finds ops without."""

from typing import Any

import numpy as np

from pellucid.check.cases import OpCase
from pellucid.check.gradient import Array
from pellucid.core.rng import Rng
from pellucid.ops import rules
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.ops.rotary import Angles
from pellucid.ops.rules.function import FUNCTIONS, Function, PerHead, Table, minimum, tanh

N, H, L, S, D, E, F, V = 2, 3, 5, 7, 11, 13, 17, 19  # primes, so that mixed-up axes fail


def normal(*shape: int) -> Array:
    """Return standard normal numbers, seeded by the shape."""
    numbers: Array = np.random.default_rng(shape).standard_normal(shape)
    return numbers


def off_the_kink(*shape: int) -> Array:
    """Return random numbers at least 0.2 away from 0, where ReLU has no derivative."""
    x = normal(*shape)
    moved: Array = x + np.copysign(0.2, x)
    return moved


_NEAR = Function(
    lambda a, at, gain, bias: a + gain * tanh(a) + bias,
    lambda da, a, at, gain, bias: (da * (1 + gain * (1 - tanh(a) * tanh(a))), da * tanh(a), da),
    {"gain": PerHead(), "bias": Table(4, lambda at: minimum(abs(at.distance), 3))},
)


def op_cases() -> list[OpCase]:
    """Return the rows of the table for ops.

    Dropout draws the same bits in every call, so that it has a derivative as well.
    """
    return [*_small(), *_norms(), *_attention(), *_packed_attention(), *_losses(), *_fused()]


def case(op: str, note: str = "", **arguments: Any) -> OpCase:
    """Make a row: float arrays among the arguments have gradients, except those in `held`.

    `of` is the op's forward and backward, if it is not the function of that name in `ops`.
    """
    held, of = arguments.pop("held", {}), arguments.pop("of", None)
    arrays = {
        k: v for k, v in arguments.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"
    }
    fixed = held | {k: v for k, v in arguments.items() if k not in arrays}
    return OpCase(op, note, arrays, fixed, of)


def _small() -> list[OpCase]:
    x, bent = normal(N, L, E), off_the_kink(N, L, F)
    index = np.array([[1, 4, 1], [0, 2, 4]])
    return [
        case("linear", x=x, weight=normal(F, E), bias=normal(F)),
        case("linear", "no bias, one row", x=normal(E), weight=normal(F, E)),
        case("softmax", x=x),
        case("log_softmax", x=x),
        case("log_softmax", "large", x=300.0 + 3.0 * normal(L, V)),
        case("relu", x=bent),
        case("leaky_relu", x=bent, slope=0.1),
        case("silu", x=x),
        case("swiglu", x=normal(N, L, 2 * F)),
        case("geglu", x=normal(N, L, 2 * F)),
        case("geglu", "tanh", x=normal(N, L, 2 * F), approximate="tanh"),
        case("share_heads", x=normal(L, H, D), times=2),
        case("gelu", x=x),
        case("gelu", "tanh", x=x, approximate="tanh"),
        case("dropout", x=x, p=0.3, rng=Rng(5)),
        case("dropout", "off", x=x, p=0.0, rng=None),
        case("embedding", "repeats", index=index, weight=normal(L, E)),
        # A padding row that is looked up has no gradient, though it has a derivative.
        case("embedding", "padding", index=index, weight=normal(L, E), padding_idx=3),
    ]


def _norms() -> list[OpCase]:
    found = []
    for norm in NORMS.values():
        row: dict[str, Any] = {
            "x": normal(N, L, E),
            "weight": 1.0 + 0.3 * normal(E),
            "bias": normal(E),
            "of": norm.op,
        }
        found += [
            case(norm.name, **row),
            case(norm.name, "large eps, no bias", **(row | {"bias": None, "eps": 0.5})),
            case(norm.name, "bare, one row", x=7.0 * normal(E), of=norm.op),
        ]
    return found


def _attention() -> list[OpCase]:
    q, k, v = normal(N, H, L, D), normal(N, H, S, D), normal(N, H, S, E)
    longer, fewer = normal(N, H, S, D), normal(N, H, L, E)
    padding = np.zeros((N, 1, 1, S), bool)
    padding[0, ..., -2:] = True
    padding[1] = True  # nothing to attend to
    per_query = normal(L, S)
    per_query[1] = -np.inf  # nothing to attend to
    per_query[2, ::2] = -np.inf
    rows = np.arange(N * L, dtype=np.uint32).reshape(N, 1, L)
    looks = rules.window(4) & rules.prefix(np.arange(N) + 2) & rules.documents(np.array([0, 3]))
    return [
        case("rotary", x=normal(L, H, 2 * D), positions=np.array([0, 3, 1, 97, 2])),
        case(
            "rotary", "as Llama 3", x=normal(L, H, 2 * D), positions=np.array([0, 3, 1, 97, 2]),
            held={"angles": Angles(500.0, 8.0, 1.0, 4.0, 64)},
        ),
        case("norm_rotate", x=normal(L, S, 2 * D), q_weight=normal(2 * D), k_weight=normal(2 * D),
              positions=np.array([0, 3, 1, 97, 2]), heads=(H, N)),
        case("norm_rotate", "keys and values", x=normal(L, S, D), k_weight=normal(D),
              heads=(0, H), eps=0.5),
        case("norm_rotate", "rotated alone", x=normal(L, S, 2 * D),
              positions=np.array([0, 3, 1, 97, 2]), heads=(H, N)),
        case("attention", q=q, k=k, v=v),
        case("attention", "scale, dropout", q=q, k=k, v=v, scale=0.2, dropout=0.3, rng=Rng(5)),
        case("attention", "bool mask", q=q, k=k, v=v, mask=padding),
        case("attention", "float mask", q=q, k=k, v=v, held={"mask": per_query}),
        case("attention", "soft cap", q=q, k=k, v=v, causal=True,
              rule=rules.soft_cap(1.5)),
        case("attention", "window, prefix, documents", q=q, k=k, v=v, rule=looks),
        case("attention", "ALiBi, then a cap", q=q, k=k, v=v,
              rule=rules.alibi | rules.soft_cap(3)),
        case("attention", "T5", q=q, k=k, v=v, table=normal(7, H),
              rule=lambda table: rules.causal & rules.relative(table, 5)),
        case("attention", "sinks", q=q, k=k, v=v, numbers=normal(H),
              rule=lambda numbers: rules.sinks(numbers) & rules.window(3) & rules.alibi),
        case("attention", "causal, L < S", q=q, k=k, v=v, causal=True),
        case("attention", "causal, L > S", q=longer, k=q, v=fewer, causal=True),
        case("attention", "one head, no batch", q=q[0, 0], k=k[0, 0], v=v[0, 0]),
        case(
            "attention", "causal, bool mask, dropout", q=q, k=k, v=v, causal=True, mask=padding,
            dropout=0.3, rng=Rng(5).at(rows),
        ),
    ]  # fmt: skip


def _packed_attention() -> list[OpCase]:
    cu_q, cu_k = np.array([0, 3, 3, 8]), np.array([0, 2, 9, 13])  # the second has no query
    no_keys = np.array([0, 0, 9, 13])  # the first nothing to attend to
    q, k, v = normal(8, H, D), normal(13, H, D), normal(13, H, E)
    own, rows = normal(8, H, D), np.arange(8, dtype=np.uint32)
    return [
        case("head_scale", q=q, scale=normal(H)),
        case("head_scale", "padded", q=normal(N, L, H, D), scale=normal(H)),
        case("packed_attention", q=q, k=k, v=v, cu_q=cu_q, cu_k=cu_k),
        case("packed_attention", "soft cap", q=q, k=k, v=v, cu_q=cu_q, cu_k=cu_k,
              rule=rules.soft_cap(2.0)),
        case("attention_weights", q=q, k=k, cu_q=cu_q, cu_k=cu_k, average=True,
              dropout=0.3, rng=Rng(5).at(rows)),
        case("attention_weights", "T5", q=q, k=k, cu_q=cu_q, cu_k=cu_k, table=normal(11, H),
              rule=lambda table: rules.causal & rules.relative(table, 3)),
        case("attention_weights", "sinks", q=q, k=k, cu_q=cu_q, cu_k=no_keys, numbers=normal(H),
              rule=rules.sinks),
        case("packed_attention", "T5 after an offset", q=q, k=k, v=v, cu_q=cu_q, cu_k=cu_k,
              table=normal(11, H), offset=np.array([0, 4, 1]),
              rule=lambda table: rules.window(3) & rules.relative(table, 3)),
        case("packed_attention", "a function", q=q, k=k, v=v, cu_q=cu_q, cu_k=cu_k, gain=normal(H),
              bias=normal(H, 4), rule=_NEAR),
        *(
            case(
                "packed_attention", name, q=q, k=k, v=v, cu_q=cu_q, cu_k=cu_k, rule=function,
                **{x: normal(*each.shape(H)) for x, each in function.learnt.items()},
            )
            for name, function in FUNCTIONS.items()
        ),
        case("packed_attention", "no keys", q=q, k=k, v=v, cu_q=cu_q, cu_k=no_keys, scale=0.2),
        case(
            "packed_attention", "causal, dropout", q=q, k=own[::-1], v=own, cu_q=cu_q, cu_k=cu_q,
            rule=rules.causal, dropout=0.3, rng=Rng(5).at(rows),
        ),
    ]  # fmt: skip


def _losses() -> list[OpCase]:
    logits, target = 2.0 * normal(N, L, V), np.arange(N * L).reshape(N, L) * 3 % V
    soft, weight = np.abs(normal(N, L, V)), 0.1 + np.abs(normal(V))
    soft = soft / soft.sum(-1, keepdims=True)
    x, table, bias = normal(L, E), normal(V, E), normal(V)
    smooth: dict[str, Any] = {"label_smoothing": 0.1}
    return [
        case("cross_entropy", logits=logits, target=target),
        case("cross_entropy", "sum", logits=logits, target=target, reduction="sum", **smooth),
        case(
            "cross_entropy", "none", logits=logits, target=target, ignore_index=3, reduction="none"
        ),
        case(
            "cross_entropy", "weights", logits=logits, target=target, ignore_index=6,
            held={"weight": weight}, **smooth,
        ),
        case("cross_entropy", "one row", logits=logits[0, 0], target=np.array(2)),
        case("cross_entropy", "probabilities", logits=logits, held={"target": soft}),
        case(
            "cross_entropy", "probabilities, weights", logits=logits,
            held={"target": soft, "weight": weight}, **smooth,
        ),
        case("linear_cross_entropy", x=x, weight=table, bias=bias, target=target[0]),
        case(
            "linear_cross_entropy", "no bias, smoothed", x=x, weight=table, bias=None,
            target=target[1], ignore_index=int(target[1, 1]), **smooth,
        ),
    ]  # fmt: skip


def _fused() -> list[OpCase]:
    x, residual = normal(N, L, E), normal(N, L, E)[::-1] ** 2
    weight, bias = 1.0 + 0.3 * normal(E), normal(E)
    dropped: dict[str, Any] = {"dropout": 0.3, "rng": Rng(5)}
    return [
        case("add_dropout_norm", x=x, residual=residual, weight=weight, bias=bias, **dropped),
        case("add_dropout_norm", "bare", x=x, residual=residual),
        *(
            case(
                "bias_act_dropout",
                name,
                x=off_the_kink(N, L, F * activation.gates),
                bias=0.1 * np.tanh(normal(F * activation.gates)),
                activation=name,
                **dropped,
            )
            for name, activation in ACTIVATIONS.items()
        ),
        case("bias_act_dropout", "no bias, no dropout", x=off_the_kink(N, L, F), bias=None),
    ]
