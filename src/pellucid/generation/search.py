"""Greedy and beam search over a batch of inputs.

The answers do not depend on the batch. A compiled model searches by itself (`compiled.engine`), and
its rows do not depend on each other. For any other model the last digits of a row depend on the
batch, because BLAS rounds differently with the number of rows. So the search notes the margin of
every decision, and answers an input again alone if rounding could have changed a decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from pellucid.core.array import to_host
from pellucid.core.batch import Packed
from pellucid.generation.ensemble import Ensemble
from pellucid.generation.model import compile_model
from pellucid.models.decoding import (
    GREEDY,
    Array,
    Decodes,
    Hypothesis,
    SearchConfig,
    constrain,
    limits_of,
    penalty,
)
from pellucid.models.prefix import Prefix


@runtime_checkable
class Searches(Protocol):
    """A model that searches by itself.

    Its results do not depend on the batch, bit for bit.
    """

    def search(
        self,
        source: Packed,
        config: SearchConfig,
        first: Array | None = None,
        prefixes: Sequence[Prefix | None] = (),
    ) -> list[list[Hypothesis]]:
        """Return the best answers to each input, as the function `search` does."""


# If two sums of log-probabilities differ by less, rounding may have swapped them: over ten times
# the largest difference seen between batches of 1, 7 and 64 (benchmarks/invariance.py).
MARGIN = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-10}


@dataclass
class Search:
    """The search for one input: its unfinished hypotheses, its answers, and the smallest margin."""

    limit: int
    prefix: Prefix | None
    beams: list[tuple[tuple[int, ...], float]] = field(default_factory=lambda: [((), 0.0)])
    done: list[Hypothesis] = field(default_factory=list)
    margin: float = float("inf")
    dtype: Any = None
    """The dtype of its log-probabilities; None before the first step."""

    @property
    def close(self) -> bool:
        """Whether rounding could have changed a decision."""
        return self.margin < MARGIN[self.dtype]

    def decided(self, values: Sequence[float] | Array) -> None:
        """Note that a decision depends on the order of these sums, given best first."""
        finite = np.asarray(values)[np.isfinite(values)]
        if len(finite) > 1:
            self.margin = min(self.margin, float((finite[:-1] - finite[1:]).min()))


def search(
    model: Decodes,
    source: Packed,
    config: SearchConfig = GREEDY,
    prefixes: Sequence[Prefix | None] = (),
    first: Array | None = None,
) -> list[list[Hypothesis]]:
    """Search for the best answers to each input; return them best first.

    Keeps the `beam` most likely unfinished hypotheses of each input. An input is finished when
    `beam` hypotheses have ended and no unfinished one can still rank above the worst answer to
    return (with a beam of 1, at the first end), or at `max_length` or the model's last position,
    where unfinished hypotheses count as answers too. Finished inputs leave the batch. At most
    `best` answers are returned, fewer if fewer were found. Ties are decided for the earlier
    hypothesis, then for the lower token.

    prefixes: a required beginning of the answer to each input, or None; empty: none has one.
    first: the token to feed before each answer, (N,); None: the begin token.

    The model is compiled first (`compile_model`); to answer many batches, compile it once yourself.
    Raises `ValueError` for an input that leaves the model no room to answer, and for a prefix that
    its answer has no room for.
    """
    model = compile_model(model)
    if isinstance(model, Searches):
        return model.search(source, config, first, prefixes)
    searches = search_once(model, source, config, prefixes, first)
    answers = [ranked(one.done)[: config.best] for one in searches]
    models = model.models if isinstance(model, Ensemble) else (model,)
    if len(source) > 1 and not all(isinstance(each, Searches) for each in models):
        for i, one in enumerate(searches):
            if one.close:
                one_first = None if first is None else first[i : i + 1]
                again = search(model, source.select([i]), config, prefixes[i : i + 1], one_first)
                answers[i] = again[0]
    return answers


def search_once(
    model: Decodes,
    source: Packed,
    config: SearchConfig,
    prefixes: Sequence[Prefix | None] = (),
    first: Array | None = None,
) -> list[Search]:
    """Search with the model's `step`; return the finished `Search` of every input."""
    bos, eos = model.config.bos_token_id, model.config.eos_token_id
    limits = limits_of(model, source, config.max_length, prefixes)
    searches = [
        Search(int(limit), prefixes[i] if prefixes else None) for i, limit in enumerate(limits)
    ]
    if not searches:
        return []
    state = model.start(source)
    active = np.arange(len(source))  # the input to which each row of the state belongs
    tokens = np.full(len(source), bos) if first is None else first
    for length in range(1, int(limits.max()) + 2):
        log_p, state = model.step(state, tokens)
        log_p = to_host(log_p)
        kept: list[tuple[int, int, int]] = []  # row, token and input of each surviving hypothesis
        for i in np.unique(active):
            own = np.flatnonzero(active == i)
            survivors = extend(searches[i], log_p[own], eos, config, length)
            kept += [(own[parent], token, i) for parent, token in survivors]
        if not kept:
            break
        rows, tokens, active = np.array(kept).T.copy()
        if not np.array_equal(rows, np.arange(len(log_p))):
            state = state.select(rows)
    for one in searches:
        one.decided([h.score for h in ranked(one.done)[: config.best + 1]])
    return searches


def extend(
    one: Search, log_p: Array, eos: int, config: SearchConfig, length: int
) -> list[tuple[int, int]]:
    """Extend one input's hypotheses to `length` tokens.

    Returns (parent row, token) of each that goes on, and an empty list when the input is finished.
    Changes `one` in place.

    log_p: (rows, V), the log-probabilities of the token after each hypothesis. With `length` above
    the input's limit, the hypotheses end as they are.
    """
    one.dtype = log_p.dtype
    if length > one.limit:  # rank each hypothesis as if it ended here
        for (tokens, total), row in zip(one.beams, log_p, strict=True):
            score = _score(total + float(row[eos]), tokens, config)
            one.done.append(Hypothesis(tokens, total, score, False))
        return []
    if one.prefix is not None or config.constraints.active:
        rows = zip(log_p, one.beams, strict=True)
        log_p = np.stack(
            [
                constrain(row, tokens, config.constraints, one.prefix, eos, one.limit - len(tokens))
                for row, (tokens, _) in rows
            ]
        )
    totals = np.array([total for _, total in one.beams])[:, None] + log_p
    ranking = _top(totals.ravel(), 2 * config.beam + 1)
    candidates = [c for c in ranking[: 2 * config.beam] if np.isfinite(totals.flat[c])]
    survivors: list[tuple[int, int]] = []
    reached = 0
    beams: list[tuple[tuple[int, ...], float]] = []
    for rank, flat in enumerate(candidates):
        parent, token = divmod(int(flat), log_p.shape[1])
        tokens, total = one.beams[parent][0], float(totals[parent, token])
        if token == eos:
            if rank < config.beam:
                reached = rank
                one.done.append(Hypothesis(tokens, total, _score(total, tokens, config), True))
        elif len(beams) < config.beam:
            reached = rank
            survivors.append((parent, token))
            beams.append(((*tokens, token), total))
    one.beams = beams
    one.decided(totals.ravel()[ranking[: reached + 2]])
    return survivors if survivors and not _answered(one, config) else []


def _top(values: Array, k: int) -> Array:
    """Return the indices of the k largest values, largest first; ties by lower index."""
    k = min(k, len(values))
    bound = np.partition(values, len(values) - k)[len(values) - k]
    rows = np.flatnonzero(values >= bound)
    return rows[np.argsort(-values[rows], kind="stable")][:k]


def _score(log_p: float, tokens: tuple[int, ...], config: SearchConfig) -> float:
    """Return the score that ranks an answer: log_p, including the end token, over the penalty."""
    return log_p / penalty(len(tokens) + 1, config.length_penalty)


def ranked(done: list[Hypothesis]) -> list[Hypothesis]:
    """Sort answers by score, best first; ties keep their order."""
    return sorted(done, key=lambda h: -h.score)


def _answered(one: Search, config: SearchConfig) -> bool:
    """Return whether the search for one input is over.

    A greedy one is at its first end token; a beam once `beam` hypotheses have ended and none that
    goes on can still score above the worst answer to return, which `decided` records.
    """
    finished = ranked([h for h in one.done if h.finished])
    if config.beam == 1:
        return bool(finished)
    if len(finished) < config.beam:
        return False
    # log p can only fall, so the best reachable score is that of today's log p and the largest
    # penalty (the divisor)
    longest = max(len(tokens) for tokens, _ in one.beams) + 1
    alpha = config.length_penalty
    largest = penalty(one.limit + 1 if alpha > 0 else longest, alpha)
    reachable = max(total for _, total in one.beams) / largest
    worst = finished[config.best - 1].score
    one.decided(sorted([reachable, worst], reverse=True))
    return reachable <= worst
