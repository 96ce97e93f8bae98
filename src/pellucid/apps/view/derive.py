"""The backward pass of norms, feed-forward networks and the loss, one number of it by hand.

Everything is computed in float64 by the pages of `ops`, from the rows and the gradients that one
pass of the model recorded. A finite difference is that of Σ dy ⊙ y, whose gradient is the loss's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.apps.view.record import Derivation, Derived, Part, Side
from pellucid.ops.norms import NORMS

Array = np.ndarray
STEP = 1e-6
"""What a number is moved by, either way."""
TERMS = 3
"""Products of a sum that are kept."""


def derive(
    parts: Sequence[Part],
    arrays: Mapping[str, Array],
    eps: float,
    rows: Mapping[Side, int],
    logits: Array,
    expected: Mapping[int, int],
) -> tuple[Derivation, ...]:
    """Return the backward pass through every norm, feed-forward network and the loss.

    `arrays` are the model's by name, `eps` its norms'. `rows` has the row in view of each side, in
    whose place another is taken where its gradient is 0; `expected` the token that a row of logits
    (T, V) should predict. The last part comes first.
    """
    found = []
    for before, part in pairwise(parts):
        if part.rows is None and part.role != "output":
            continue
        row = rows.get(part.side, 0)
        if part.drows is not None and not part.drows[row].any():  # no loss depends on it
            row = int(np.abs(part.drows).sum(axis=1).argmax())
        steps: tuple[Derived, ...] = ()
        if part.role == "output" and before.rows is not None and expected:
            row = row if row in expected else min(expected)
            steps = tuple(_loss(part, before.rows[row], arrays, logits[row], expected[row]))
        elif part.drows is None or before.rows is None:
            continue
        elif part.role == "norm":
            steps = tuple(_norm(part, before.rows, arrays, eps, row))
        elif part.role == "feed_forward":
            steps = tuple(_feed_forward(part, before.rows, arrays, row))
        if steps:
            found.append(
                Derivation(
                    role=part.role,
                    kind=part.kind,
                    stack=part.stack,
                    side=part.side,
                    row=row,
                    name=part.tensors[0][0],
                    steps=steps,
                    layer=part.layer,
                    block=part.block,
                )
            )
    return tuple(reversed(found))


def _norm(
    part: Part, rows: Array, arrays: Mapping[str, Array], eps: float, row: int
) -> Iterator[Derived]:
    """dy → g = dy ⊙ γ → dx, dγ, dβ."""
    op = NORMS[part.kind].op
    weight, bias = _two(part, arrays, 0)
    assert weight is not None
    assert part.drows is not None
    x, dy = _wide(rows), _wide(part.drows)
    own, dy_own = x[row], dy[row]

    def loss(x: Array = x, weight: Array = weight, bias: Array | None = bias) -> float:
        return float((dy * op.forward(x, weight, bias, eps)[0]).sum())

    def loss_of_row(x: Array) -> float:
        return float(dy_own @ op.forward(x, weight, bias, eps)[0])

    _, saved = op.forward(x, weight, bias, eps)
    x_hat = saved.x_hat
    dx, dweight, dbias = op.backward(dy, saved)
    g = dy_own * weight
    e = _largest(g)
    yield Derived(
        "g",
        g,
        (e,),
        float(g[e]),
        _difference(lambda moved: float(dy_own @ (weight * moved)), x_hat[row], e),
        numbers=(float(dy_own[e]), float(weight[e])),
    )
    e = _largest(dx[row])
    mean_gx, inverse = (g * x_hat[row]).mean(), saved[1][row, 0]
    numbers: dict[str, tuple[float, ...]] = {
        "layer_norm": (g[e], g.mean(), x_hat[row, e], mean_gx, inverse),
        "rms_norm": (g[e], x_hat[row, e], mean_gx, inverse),
    }
    yield Derived(
        "dx",
        dx[row],
        (e,),
        float(dx[row, e]),
        _difference(loss_of_row, own, e),
        numbers=tuple(map(float, numbers.get(part.kind, ()))),
    )
    e = _largest(dweight)
    yield Derived(
        "dweight",
        dweight,
        (e,),
        float(dweight[e]),
        _difference(lambda moved: loss(weight=moved), weight, e),
        *_terms(dy[:, e], x_hat[:, e]),
    )
    if bias is not None:
        e = _largest(dbias)
        yield Derived(
            "dbias",
            dbias,
            (e,),
            float(dbias[e]),
            _difference(lambda moved: loss(bias=moved), bias, e),
            *_terms(dy[:, e], np.ones(len(dy))),
        )


def _feed_forward(
    part: Part, rows: Array, arrays: Mapping[str, Array], row: int
) -> Iterator[Derived]:
    """dy → da = dy W₂ → dh = da ⊙ φ′(h) → dx = dh W₁, dW₁ = dhᵀ x."""
    (w1, b1), (w2, b2) = _two(part, arrays, 0), _two(part, arrays, 2)
    assert w1 is not None
    assert w2 is not None
    assert part.drows is not None
    x, dy = _wide(rows), _wide(part.drows)

    def activated(h: Array) -> tuple[Array, Any]:
        return ops.bias_act_dropout(h, b1, activation=part.kind)

    def loss(h: Array, dy: Array = dy) -> float:
        return float((dy * ops.linear(activated(h)[0], w2, b2)[0]).sum())

    def loss_of_weight(moved: Array) -> float:  # one row of W₁: one column of h
        changed = h.copy()
        changed[:, j] = x @ moved
        return loss(changed)

    h, linear1 = ops.linear(x, w1)
    a, middle = activated(h)
    _, linear2 = ops.linear(a, w2, b2)
    da, _, _ = ops.linear_backward(dy, linear2)
    dh, _ = ops.bias_act_dropout_backward(da, middle)
    slope, _ = ops.bias_act_dropout_backward(np.ones_like(da), middle)
    dx, dw1, _ = ops.linear_backward(dh, linear1)
    own = dy[row]
    j = _largest(da[row])
    yield Derived(
        "da",
        da[row],
        (j,),
        float(da[row, j]),
        _difference(lambda moved: float(own @ ops.linear(moved, w2, b2)[0]), a[row], j),
        *_terms(own, w2[:, j]),
    )
    j = _largest(dh[row])
    yield Derived(
        "dh",
        dh[row],
        (j,),
        float(dh[row, j]),
        _difference(lambda moved: loss(moved, own), h[row], j),
        numbers=(float(da[row, j % da.shape[1]]), float(slope[row, j])),
    )
    e = _largest(dx[row])
    yield Derived(
        "dx",
        dx[row],
        (e,),
        float(dx[row, e]),
        _difference(lambda moved: loss(ops.linear(moved, w1)[0], own), x[row], e),
        *_terms(dh[row], w1[:, e]),
    )
    j, e = np.unravel_index(np.abs(dw1).argmax(), dw1.shape)
    yield Derived(
        "dW1",
        dw1[j],
        (int(j), int(e)),
        float(dw1[j, e]),
        _difference(loss_of_weight, w1[j], e),
        *_terms(dh[:, j], x[:, e]),
    )


def _loss(
    part: Part, row: Array, arrays: Mapping[str, Array], logits: Array, expected: int
) -> Iterator[Derived]:
    """−log p → d log p = −y → dℓ = p − y → dx = dℓ W, for one row."""
    weight, bias = _two(part, arrays, 0)
    assert weight is not None
    x, wanted = _wide(row), np.array(expected)

    def loss(logits: Array) -> tuple[float, Any]:
        total, saved = ops.cross_entropy(logits, wanted, reduction="sum")
        return float(total), saved

    log_p, _ = ops.log_softmax(_wide(logits))
    _, saved = loss(_wide(logits))
    dlogits = ops.cross_entropy_backward(np.ones(()), saved)
    dlog_p = -saved.wanted[0]
    yield Derived(
        "dlog_p",
        dlog_p,
        (expected,),
        float(dlog_p[expected]),
        _difference(lambda moved: -float(moved[expected]), log_p, expected),
        numbers=(1.0,),
    )
    yield Derived(
        "dlogits",
        dlogits,
        (expected,),
        float(dlogits[expected]),
        _difference(lambda moved: loss(moved)[0], _wide(logits), expected),
        numbers=(float(np.exp(log_p[expected])), 1.0),
    )
    dx = dlogits @ weight
    e = _largest(dx)
    yield Derived(
        "dx",
        dx,
        (e,),
        float(dx[e]),
        _difference(lambda moved: loss(ops.linear(moved, weight, bias)[0])[0], x, e),
        *_terms(dlogits, weight[:, e]),
    )


def _two(part: Part, arrays: Mapping[str, Array], first: int) -> tuple[Array | None, Array | None]:
    """Return weight and bias among a part's tensors, in float64."""
    names = [name for name, _, _ in part.tensors]
    found: list[Array | None] = [None, None]
    layers = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    layer = layers[first // 2]
    for n, kind in enumerate(("weight", "bias")):
        if f"{layer}.{kind}" in names:
            found[n] = _wide(arrays[f"{layer}.{kind}"])
    return found[0], found[1]


def _wide(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _largest(x: Array) -> int:
    return int(np.abs(x).argmax())


def _terms(a: Array, b: Array) -> tuple[tuple[tuple[float, float], ...], int]:
    """Return the largest products of Σ a b, and how many there are besides."""
    order = np.argsort(-np.abs(a * b), kind="stable")[:TERMS]
    return tuple((float(a[i]), float(b[i])) for i in order), max(0, len(a) - TERMS)


def _difference(f: Callable[[Array], float], x: Array, entry: Any) -> float:
    """(f(x + ε) − f(x − ε)) / 2ε with one entry moved."""
    ends = []
    for step in (STEP, -STEP):
        moved = x.copy()
        moved[entry] += step
        ends.append(f(moved))
    return (ends[0] - ends[1]) / (2 * STEP)
