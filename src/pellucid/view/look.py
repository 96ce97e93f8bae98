"""Looking into a model: one sentence through it and back, everything on the way kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from pellucid import kernels, nn, ops
from pellucid.core.batch import Batch, Packed
from pellucid.models.causal_lm import CausalLM
from pellucid.models.masked_lm import MaskedLM
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import AttentionMap, Recorder
from pellucid.view.record import KINDS, Candidate, Kind, Map, Step
from pellucid.view.side import Side
from pellucid.view.tokens import Label

Array = np.ndarray
CANDIDATES = 10


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Look without a trace: dropout off, no gradient kept; all as before afterwards."""
    modes = [(module, module.training) for _, module in model.modules()]
    wanted = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        model.eval()
        for parameter, _ in wanted:
            parameter.requires_grad = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, grad in wanted:
            parameter.requires_grad = grad


class Seen(NamedTuple):
    """What one sentence did to a model."""

    maps: tuple[Map, ...]
    loss: float
    """Σ −log p of the tokens asked for, in nats."""
    logits: Array
    """(L, V): row l predicts what follows token l of the last stack."""


def look_at_pair(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], wanted: Sequence[int]
) -> Seen:
    """Pass one pair through an encoder-decoder and back, on the plain pages.

    `target` is what the decoder reads, begin and all; the loss is that of the `wanted` tokens, the
    first of which follows the first of `target`. Call it inside `undisturbed`.
    """
    # A batch's target ends in a token that is not read.
    batch = Batch(Packed.of([source]), Packed.of([[*target, model.config.eos_token_id]]))
    recorder = Recorder()
    with kernels.reference():
        rows, rows_backward = model.decode_rows(batch, recorder=recorder)
        logits, output_backward = model.output.forward(rows)
        loss = _loss(
            logits,
            range(len(wanted)),
            wanted,
            lambda dlogits: rows_backward(output_backward(dlogits)),
        )
    return Seen(maps_of(recorder), loss, logits)


def look_at_text(
    model: CausalLM | MaskedLM, text: Sequence[int], places: Sequence[int], wanted: Sequence[int]
) -> Seen:
    """Pass a text through a decoder or an encoder alone and back, on the plain pages.

    The loss is that of the `wanted` tokens at these places; a model without a head has none.
    """
    recorder = Recorder()
    with kernels.reference():
        if model.output is None:  # an encoder without a head
            rows, _ = model.rows(Packed.of([text]), recorder=recorder)
            return Seen(maps_of(recorder), 0.0, rows)
        logits, backward = model.forward(Packed.of([text]), recorder=recorder)
        loss = _loss(logits, places, wanted, backward)
    return Seen(maps_of(recorder), loss, logits)


def _loss(
    logits: Array, places: Sequence[int], wanted: Sequence[int], backward: Callable[[Array], Any]
) -> float:
    """Return Σ −log p of the tokens wanted in these rows of logits (T, V), and send it back."""
    rows = list(places)
    loss, saved = ops.cross_entropy(logits[rows], np.asarray(wanted, np.int64), reduction="sum")
    dlogits = np.zeros_like(logits)
    dlogits[rows] = ops.cross_entropy_backward(np.ones_like(loss), saved)
    backward(dlogits)
    return float(loss)


def maps_of(recorder: Recorder) -> tuple[Map, ...]:
    """Return the maps of one sentence (N = 1) after its backward pass, in the model's order."""
    made = [_map(name, seen) for name, seen in recorder.maps.items()]
    kinds = list(KINDS)
    return tuple(sorted(made, key=lambda m: (kinds.index(m.kind), m.layer)))


def _map(name: str, seen: AttentionMap) -> Map:
    """Self-attention is called a decoder's where it may not look ahead, else an encoder's."""
    *path, attention = name.split(".")
    layer = next(int(part) for part in reversed(path) if part.isdigit())
    kind: Kind = "decoder" if seen.causal else "encoder"
    if attention == "multihead_attn":
        kind = "cross"
    q = seen.q[0]
    return Map(
        name,
        kind,
        layer + 1,
        seen.causal,
        seen.scale,
        q,
        seen.k[0],
        seen.v[0],
        np.zeros_like(q) if seen.doutputs is None else seen.doutputs[0],
        seen.probabilities[0],
    )


def steps_of(
    logits: Array, wanted: Sequence[int], places: Sequence[int], side: Side
) -> tuple[Step, ...]:
    """Return each wanted token with what the model held likely there.

    logits: (T, V); `places` are the rows that predict the wanted tokens.
    """
    whole = side.labels(wanted)

    def label(n: int, token: int) -> Label:
        return whole[n] if token == wanted[n] else side.last([*wanted[:n], token])

    log_p, _ = ops.log_softmax(logits.astype(np.float64))
    steps = []
    for n, (token, place) in enumerate(zip(wanted, places, strict=True)):
        row = np.exp(log_p[place])
        likeliest = np.argsort(-row, kind="stable")[:CANDIDATES].tolist()
        candidates = tuple(Candidate(label(n, i), float(row[i])) for i in likeliest)
        steps.append(Step(label(n, token), float(row[token]), place, candidates))
    return tuple(steps)
