"""The backward pass of norms, feed-forward networks and the loss, one number of it by hand.

Everything is computed in float64 by the pages of `ops`, from the rows and the gradients that one
pass of the model recorded. A finite difference is that of Σ dy ⊙ y, whose gradient is the loss's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.apps.view.record import Array, Derivation, Derived, Part, Side
from pellucid.ops.norms import NORMS

STEP = 1e-6
"""Step of the finite differences, in both directions."""
TERMS = 3
"""Products of a sum that are kept."""
PLACE = ("role", "kind", "stack", "side", "layer", "block")
"""Fields of a part that say which one it is."""


def derive(
    parts: Sequence[Part],
    rows: Mapping[Side, int],
    logits: Array,
    expected: Mapping[int, int],
) -> tuple[Derivation, ...]:
    """Return the backward pass through every norm, feed-forward network and the loss.

    `rows`: the row in view of each side; where its gradient is 0, another row is shown. `expected`:
    the target token of each row of logits (T, V). The last part comes first.
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
            steps = tuple(_loss(part, before.rows[row], logits[row], expected[row]))
        elif part.drows is not None and before.rows is not None:
            x, dy = _wide(before.rows), _wide(part.drows)
            if part.role == "norm":
                steps = tuple(_norm(part, x, dy, row))
            elif part.role == "feed_forward":
                steps = tuple(_feed_forward(part, x, dy, row))
        if steps:
            place = {name: getattr(part, name) for name in PLACE}
            found.append(Derivation(**place, row=row, name=part.tensors[0][0], steps=steps))
    return tuple(reversed(found))


def _norm(part: Part, x: Array, dy: Array, row: int) -> Iterator[Derived]:
    """dy → g = dy ⊙ γ → dx, dγ, dβ."""
    op, eps = NORMS[part.kind].op, part.modules[0].eps
    weight, bias = _layer(part)
    own, dy_own = x[row], dy[row]

    def loss(weight: Array = weight, bias: Array | None = bias) -> float:
        return float((dy * op.forward(x, weight, bias, eps)[0]).sum())

    def loss_of_row(x: Array) -> float:
        return float(dy_own @ op.forward(x, weight, bias, eps)[0])

    _, saved = op.forward(x, weight, bias, eps)
    x_hat = saved.x_hat
    dx, dweight, dbias = op.backward(dy, saved)
    g = dy_own * weight
    e = _largest(g)
    made = dy_own[e], weight[e]
    yield _step("g", g, e, lambda moved: float(dy_own @ (weight * moved)), x_hat[row], made)
    e = _largest(dx[row])
    mean_gx, inverse = (g * x_hat[row]).mean(), saved[1][row, 0]
    numbers: dict[str, tuple[float, ...]] = {
        "layer_norm": (g[e], g.mean(), x_hat[row, e], mean_gx, inverse),
        "rms_norm": (g[e], x_hat[row, e], mean_gx, inverse),
    }
    yield _step("dx", dx[row], e, loss_of_row, own, numbers.get(part.kind, ()))
    e = _largest(dweight)
    yield _step("dweight", dweight, e, loss, weight, terms=(dy[:, e], x_hat[:, e]))
    if bias is not None:
        e = _largest(dbias)
        of_bias = partial(loss, weight)
        yield _step("dbias", dbias, e, of_bias, bias, terms=(dy[:, e], np.ones(len(dy))))


def _feed_forward(part: Part, x: Array, dy: Array, row: int) -> Iterator[Derived]:
    """dy → da = dy W₂ → dh = da ⊙ φ′(h) → dx = dh W₁, dW₁ = dhᵀ x."""
    (w1, b1), (w2, b2) = _layer(part), _layer(part, 1)
    own = dy[row]

    def activated(h: Array) -> tuple[Array, Any]:
        return ops.bias_act_dropout(h, b1, activation=part.kind)

    def loss(h: Array, dy: Array = own) -> float:
        return float((dy * ops.linear(activated(h)[0], w2, b2)[0]).sum())

    def loss_of_weight(moved: Array) -> float:  # one row of W₁: one column of h
        changed = h.copy()
        changed[:, j] = x @ moved
        return loss(changed, dy)

    h, linear1 = ops.linear(x, w1)
    a, middle = activated(h)
    _, linear2 = ops.linear(a, w2, b2)
    da, _, _ = ops.linear_backward(dy, linear2)
    dh, _ = ops.bias_act_dropout_backward(da, middle)
    slope, _ = ops.bias_act_dropout_backward(np.ones_like(da), middle)
    dx, dw1, _ = ops.linear_backward(dh, linear1)
    j = _largest(da[row])
    yield _step(
        "da", da[row], j, lambda moved: float(own @ ops.linear(moved, w2, b2)[0]), a[row],
        terms=(own, w2[:, j]),
    )  # fmt: skip
    j = _largest(dh[row])
    yield _step("dh", dh[row], j, loss, h[row], (da[row, j % da.shape[1]], slope[row, j]))
    e = _largest(dx[row])
    yield _step(
        "dx", dx[row], e, lambda moved: loss(ops.linear(moved, w1)[0]), x[row],
        terms=(dh[row], w1[:, e]),
    )  # fmt: skip
    j, e = map(int, np.unravel_index(np.abs(dw1).argmax(), dw1.shape))
    found = _step("dW1", dw1[j], e, loss_of_weight, w1[j], terms=(dh[:, j], x[:, e]))
    yield found._replace(entry=(j, e))


def _loss(part: Part, row: Array, logits: Array, expected: int) -> Iterator[Derived]:
    """−log p → d log p = −y → dℓ = p − y → dx = dℓ W, for one row."""
    weight, bias = _layer(part)
    x, logits = _wide(row), _wide(logits)

    def loss(logits: Array) -> float:
        return float(ops.cross_entropy(logits, np.array(expected), reduction="sum")[0])

    log_p, _ = ops.log_softmax(logits)
    _, saved = ops.cross_entropy(logits, np.array(expected), reduction="sum")
    dlogits = ops.cross_entropy_backward(np.ones(()), saved)
    yield _step(
        "dlog_p", -saved.wanted[0], expected, lambda moved: -float(moved[expected]), log_p, (1.0,)
    )
    p = np.exp(log_p[expected])
    yield _step("dlogits", dlogits, expected, loss, logits, (p, 1.0))
    dx = dlogits @ weight
    e = _largest(dx)
    yield _step(
        "dx", dx, e, lambda moved: loss(ops.linear(moved, weight, bias)[0]), x,
        terms=(dlogits, weight[:, e]),
    )  # fmt: skip


def _step(
    name: str,
    gradient: Array,
    entry: int,
    f: Callable[[Array], float],
    x: Array,
    numbers: Sequence[float] = (),
    terms: tuple[Array, Array] | None = None,
) -> Derived:
    """Return a gradient (n,) with one number of it, checked by moving that of x, which f takes.

    The number is made of `numbers`, or the sum of the products of `terms`, of which the largest are
    kept.
    """
    ends = []
    for step in (STEP, -STEP):
        moved = x.copy()
        moved[entry] += step
        ends.append(f(moved))
    difference = (ends[0] - ends[1]) / (2 * STEP)
    found = Derived(name, gradient, (entry,), float(gradient[entry]), difference)
    if terms is None:
        return found._replace(numbers=tuple(map(float, numbers)))
    a, b = terms
    largest = np.argsort(-np.abs(a * b), kind="stable")[:TERMS]
    products = tuple((float(a[i]), float(b[i])) for i in largest)
    return found._replace(terms=products, rest=max(0, len(a) - TERMS))


def _layer(part: Part, n: int = 0) -> tuple[Array, Array | None]:
    """Return weight and bias of the n-th layer that a part has, in float64."""
    layer = part.modules[n]
    return _wide(layer.weight.data), None if layer.bias is None else _wide(layer.bias.data)


def _wide(x: Array) -> Array:
    return np.asarray(x, np.float64)


def _largest(x: Array) -> int:
    return int(np.abs(x).argmax())
