"""Run one sentence forward and backward through a model, and record everything."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from pellucid import nn, ops
from pellucid.apps.view.record import Array, Candidate, Kind, Map, Side, Step
from pellucid.apps.view.tokens import SPECIALS, Label, Vocabulary
from pellucid.core import dispatch
from pellucid.core.array import to_host
from pellucid.core.batch import Batch, Packed
from pellucid.models.classifier import Classifier
from pellucid.models.masked_lm import MaskedLM
from pellucid.models.seq2seq import Seq2Seq
from pellucid.models.stack import ModelStack
from pellucid.models.walk import stacks_of
from pellucid.nn.attention import Attention
from pellucid.nn.recorder import AttentionMap, Recorder, Rows

Model = TypeVar("Model", bound=nn.Module)
CANDIDATES = 10


def frozen(model: Model) -> Model:
    """Return a copy of a model, on the host and in eval mode.

    It shares the model's NumPy arrays. Its parameters get no gradients. The model itself, which may
    be serving or training, is unchanged.
    """
    arrays = {id(x): x for p in model.parameters() for x in (p.data, p.grad, p.master)}
    twin = copy.deepcopy(model, arrays).eval()
    for parameter in twin.parameters():
        parameter.data, parameter.master = to_host(parameter.learnt), None
        parameter.requires_grad = False
    return twin


class Captured(NamedTuple):
    """One forward and backward pass of one sentence."""

    maps: tuple[Map, ...]
    loss: float
    """Σ −log p of the expected tokens, in nats."""
    logits: Array
    """(T, V), a row for each token of the last stack: it predicts the next token, or in a masked
    language model or a classifier the token itself. A classifier of texts has one row. Without a
    head, the last rows of the stack."""
    rows: dict[str, Rows]
    """Output and gradient of every part, by the part's name."""


def capture(
    model: Any,
    texts: Mapping[Side, Sequence[int]],
    places: Sequence[int],
    expected: Sequence[int],
    *,
    maps: bool = True,
) -> Captured:
    """Run one sentence forward and backward through a model, with the reference ops.

    texts: the token ids that each stack reads. The loss is that of the `expected` tokens at the
    rows `places` of the logits; it is 0 for a model without a head. Without `maps` it runs forward
    only, and returns no maps or rows. The model must be `frozen`.
    """
    recorder, rows, loss = Recorder(), list(places), 0.0
    with dispatch.reference(), recorder if maps else nullcontext():
        logits, backward = run(model, texts)
        if backward is not None:
            wanted = np.asarray(expected, np.int64)
            total, saved = ops.cross_entropy(logits[rows], wanted, reduction="sum")
            loss = float(total)
            if maps:
                dlogits = np.zeros_like(logits)
                dlogits[rows] = ops.cross_entropy_backward(np.ones_like(total), saved)
                backward(dlogits)
    return Captured(maps_of(recorder, model), loss, logits, recorder.rows)


def run(
    model: Any, texts: Mapping[Side, Sequence[int]]
) -> tuple[Array, Callable[[Array], Any] | None]:
    """Run the model forward; return the logits and their backward function.

    For a model without a head it returns the last rows, and None. Special tokens are no labels: a
    classifier's logits of them are −inf.
    """
    if isinstance(model, Seq2Seq):
        # A batch's target ends in a token that is not read.
        target = [*texts["target"], model.config.eos_token_id]
        batch = Batch(Packed.of([texts["source"]]), Packed.of([target]))
        rows, rows_backward = model.decode_rows(batch)
        logits, output_backward = model.output.forward(rows)
        return logits, lambda dlogits: rows_backward(output_backward(dlogits))
    text = Packed.of(list(texts.values()))
    if isinstance(model, MaskedLM) and model.head is None:
        return model.rows(text)[0], None
    logits, backward = model.forward(text)
    if isinstance(model, Classifier):
        logits[:, :SPECIALS] = -np.inf
    return logits, backward


def maps_of(recorder: Recorder, model: nn.Module) -> tuple[Map, ...]:
    """Return the maps of all attention layers after one sentence (N = 1) ran backward."""
    names = {id(module): name for name, module in model.named_modules()}
    made = []
    for stack in stacks_of(model).values():
        for memory in (False, True):
            kind = cast(Kind, "cross" if memory else stack.name)
            for layer, attention in enumerate(stack.attentions(memory)):
                if (name := names[id(attention)]) in recorder.maps:
                    made.append(_map(recorder.maps[name], name, layer, kind, attention, stack))
    return tuple(made)


def _map(
    seen: AttentionMap, name: str, layer: int, kind: Kind, attention: Attention, stack: ModelStack
) -> Map:
    """Make the map of one attention layer from what the recorder has seen."""
    q, added = seen.q[0], None
    dqueries, dkeys = _input_gradients(seen, attention)
    if (found := stack.distances(attention)) is not None:
        table, reach = found
        last = q.shape[1] - 1
        added = table[:, reach + np.clip(np.arange(-last, last + 1), -reach, reach)]
    return Map(
        name,
        kind,
        layer + 1,
        seen.scale,
        q,
        seen.k[0],
        seen.v[0],
        np.zeros_like(q) if seen.doutputs is None else seen.doutputs[0],
        seen.probabilities[0],
        dqueries,
        dkeys,
        added,
        stack.rule(attention, memory=kind == "cross"),
    )


def _input_gradients(
    seen: AttentionMap, attention: Attention
) -> tuple[Array, Array] | tuple[None, None]:
    """Return dx of the rows behind queries, (L, E), and behind keys and values, (S, E).

    They are dQ, dK and dV times the transposed projections.
    """
    if not seen.dprojections:
        return None, None
    weight = np.concatenate([w for w, _ in attention.projections()])
    queries = attention.config.width
    dq, dkv = seen.dprojections[0][:, :queries], seen.dprojections[-1][:, queries - len(weight) :]
    return dq @ weight[:queries], dkv @ weight[queries:]


def steps_of(
    logits: Array,
    expected: Sequence[int],
    places: Sequence[int],
    vocabulary: Vocabulary,
    never: Sequence[int] = (),
) -> tuple[Step, ...]:
    """Return each expected token with the `CANDIDATES` most likely tokens at its position.

    logits: (T, V); places: the rows that predict the expected tokens; never: tokens that the model
    does not generate, which are left out of the likely ones, as are those of probability 0.
    """
    whole = vocabulary.labels(expected)

    def label(n: int, token: int) -> Label:
        return whole[n] if token == expected[n] else vocabulary.last([*expected[:n], token])

    log_p, _ = ops.log_softmax(logits.astype(np.float64))
    steps = []
    for n, (token, place) in enumerate(zip(expected, places, strict=True)):
        row = np.exp(log_p[place])
        order = np.argsort(-row, kind="stable")
        likely = order[~np.isin(order, never) & (row[order] > 0)][:CANDIDATES].tolist()
        candidates = tuple(Candidate(label(n, i), float(row[i])) for i in likely)
        steps.append(Step(label(n, token), float(row[token]), place, token, candidates))
    return tuple(steps)
