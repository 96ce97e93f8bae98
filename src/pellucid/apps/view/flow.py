"""One gradient from one predicted token back to the embeddings: its length at every place."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.apps.view.capture import Captured
from pellucid.apps.view.record import Array, Edge, Flow, Map, Side, Stage
from pellucid.apps.view.strip import SIDES
from pellucid.core.array import host
from pellucid.models import MaskedLM
from pellucid.models.stack import ModelStack, Step
from pellucid.models.walk import stacks_of
from pellucid.nn.attention import Attention
from pellucid.nn.recorder import Rows
from pellucid.ops.norms import NORMS

TOKENS = 12
"""Predicted tokens that are followed back; each takes a forward and a backward pass."""
LONGEST = 128
"""Tokens of the longest sequence that is followed back: a picture has a column for each."""
EDGES = 48
"""The widest pairs of query and key that are kept of each attention."""


def flows_of(
    model: nn.Module,
    run: Callable[[Sequence[int], Sequence[int]], Captured],
    texts: Mapping[Side, Sequence[int]],
    expected: Mapping[int, int],
) -> tuple[Flow, ...]:
    """Return the gradients of −log p of single tokens, the first `TOKENS` of those expected.

    `run(places, tokens)` goes forward and backward with the loss of these tokens alone; `texts` are
    what each stack reads; `expected` has the token that a row of logits should predict. Of a
    text longer than `LONGEST`, or where a stack has no layers, there are none.
    """
    whole = all(stack.steps for stack in stacks_of(model).values())
    if not whole or max(map(len, texts.values())) > LONGEST:
        return ()
    made = []
    for n, (place, token) in enumerate(list(expected.items())[:TOKENS]):
        seen = run([place], [token])
        p, _ = ops.softmax(seen.logits[place].astype(np.float64))
        p[token] -= 1.0
        stages = tuple(_stages(model, seen))
        tables = {
            SIDES[name]: _table(stack, texts[SIDES[name]], seen.rows)
            for name, stack in stacks_of(model).items()
        }
        made.append(Flow(n, place, float(np.linalg.norm(p)), stages, tables))
    return tuple(made)


def _stages(model: nn.Module, seen: Captured) -> Iterator[Stage]:
    """From the rows that enter the output layer to those that leave the embeddings."""
    names = {id(module): name for name, module in model.named_modules()}
    maps = {m.name: m for m in seen.maps}
    stacks = list(stacks_of(model).values())
    if isinstance(model, MaskedLM) and (head := seen.rows.get("head")) is not None:
        yield _stage("transform", stacks[-1].name, head)
    for stack in reversed(stacks):
        if stack.norm is not None:
            yield _stage("norm", stack.name, seen.rows[names[id(stack.norm)]])
        for step in reversed(stack.steps):
            body = step.block.body
            m = maps[names[id(body)]] if isinstance(body, Attention) else None
            yield _residual(stack.name, step, m, seen.rows)


def _stage(role: Any, stack: str, rows: Rows, skip: Any = 0.0, **rest: Any) -> Stage:
    """A step whose gradient is what comes around it, `skip`, and what comes through it."""
    assert rows.dy is not None
    assert rows.dx is not None
    around = np.broadcast_to(skip, rows.dx.shape)
    lengths = [_lengths(d) for d in (rows.dy, around, rows.dx - around, rows.dx)]
    return Stage(role, stack, SIDES[stack], np.stack(lengths), **rest)


def _residual(stack: str, step: Step, m: Map | None, rows: Mapping[str, Rows]) -> Stage:
    name = f"{stack}.layers.{step.layer}.{step.number}"
    # Without dropout the sum passes the same gradient to both of its terms.
    skip, about = rows[f"{name}.sublayer"].dy, dict[str, Any](layer=step.layer)
    if m is None:
        return _stage("feed_forward", stack, rows[name], skip, **about)
    about |= {"heads": _lengths(m.doutputs), "edges": edges_of(m)}
    if m.kind != "cross":
        return _stage("attention", stack, rows[name], skip, **about)
    memory = None if m.dkeys is None else _lengths(m.dkeys)
    return _stage("cross", stack, rows[name], skip, memory=memory, **about)


def edges_of(m: Map) -> tuple[Edge, ...]:
    """Return the widest gradients that one query sends to one key and its value, all heads.

    The squared length is Σ_h ‖w dz‖² + ‖s da q‖²: what dv and dk of the key have from the query.
    In self-attention that of dq, which goes back to the query's own token, is added.
    """
    if m.dscores is None:
        return ()
    q, k, dz, w, da = (
        x.astype(np.float64) for x in (m.q, m.k, m.doutputs, m.probabilities, m.dscores)
    )
    da = da * m.scale
    squares = (w * w * (dz * dz).sum(-1)[..., None] + da * da * (q * q).sum(-1)[..., None]).sum(0)
    if m.kind != "cross":
        dq = da @ k
        squares[np.diag_indices(len(squares))] += (dq * dq).sum((0, 2))
    widths = np.sqrt(squares)
    order = np.argsort(-widths, axis=None, kind="stable")[:EDGES]
    at = zip(*np.unravel_index(order, widths.shape), strict=True)
    return tuple(Edge(int(i), int(j), float(widths[i, j])) for i, j in at if widths[i, j] > 0)


def _table(stack: ModelStack, ids: Sequence[int], rows: Mapping[str, Rows]) -> Array:
    """Return, for each token read, the length of the gradient of its row of the embedding, (T,).

    Tokens that are read twice have one row, whose gradients add up.
    """
    embed, tokens = stack.embed, np.asarray(ids, np.int64)
    d = rows[f"{stack.name}.layers.0.0"].dx
    assert d is not None
    if (norm := embed.norm) is not None:
        op = NORMS[norm.kind].op
        x, _ = embed.sum(tokens, host.arange(len(tokens)))
        d = op.backward(d, op.forward(x, *norm.arrays(), norm.eps)[1])[0]
    table = np.zeros((int(tokens.max()) + 1, d.shape[1]))
    np.add.at(table, tokens, d * embed.config.token_factor)
    return _lengths(table)[tokens]


def _lengths(d: Array) -> Array:
    lengths: Array = np.linalg.norm(d.astype(np.float64), axis=-1)
    return lengths
