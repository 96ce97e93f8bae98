"""From a model to sentences: greedy and beam search over a batch.

A model offers `start(source) -> state`, `step(state, tokens) -> (log p (B, V), state)` and
`state.select(rows)`; whether it keeps a cache is its own affair.

Answers do not depend on the batch. Values do, in their last digits (BLAS rounds a row differently
with the number of rows), so every decision's margin is kept, and an input with a margin that
rounding could have crossed is answered again alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from pellucid.decoding.constraints import Constraints, constrain
from pellucid.errors import UsageError
from pellucid.packed import Packed

Array = np.ndarray


class Decodes(Protocol):
    """What search asks of a model."""

    config: Any

    @property
    def dtype(self) -> Any:
        """The dtype of its parameters."""

    def start(self, source: Packed) -> Any:
        """Return the state before the first token, one hypothesis per source."""

    def step(self, state: Any, tokens: Array) -> tuple[Array, Any]:
        """Return the log-probabilities (B, V) of the next token, and the state after it."""


class Hypothesis(NamedTuple):
    """One answer: its tokens without begin and end, and how likely the model holds it to be."""

    tokens: tuple[int, ...]
    log_p: float
    """Σ log p of the tokens, the end token included if it was said."""
    score: float
    """log_p divided by the length penalty: what answers are ranked by."""
    finished: bool
    """Whether the end token was said, rather than the length running out."""


# How near two sums of log-probabilities may come before rounding could have swapped them: over ten
# times the largest difference seen between batches of 1, 7 and 64 (benchmarks/batch_noise.py).
MARGIN = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-10}


@dataclass(frozen=True)
class SearchConfig:
    """How an answer is looked for. Raises `UsageError` for a value out of range."""

    beam: int = 1
    """Hypotheses kept for each input; 1 is greedy search."""
    max_length: int = 128
    """Longest answer, in tokens, the end token not counted."""
    length_penalty: float = 1.0
    """α: an answer of n tokens is ranked by log p / ((5 + n) / 6)^α; 0 ranks by log p alone."""
    best: int = 1
    """Answers returned for each input, at most `beam`."""
    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        if self.beam < 1 or self.max_length < 1:
            raise UsageError(
                f"beam and max_length must be at least 1, got {self.beam} and {self.max_length}"
            )
        if not 1 <= self.best <= self.beam:
            raise UsageError(f"best must lie between 1 and beam = {self.beam}, got {self.best}")


def penalty(length: int, alpha: float) -> float:
    """Return ((5 + length) / 6)^α. Source: Wu et al. 2016 (GNMT), 7.

    >>> penalty(1, 0.6)
    1.0
    """
    return float(((5 + length) / 6) ** alpha)


@dataclass
class _Search:
    """The hypotheses of one input while it is being answered."""

    prefix: Sequence[int]
    beams: list[tuple[tuple[int, ...], float]] = field(default_factory=lambda: [((), 0.0)])
    done: list[Hypothesis] = field(default_factory=list)
    margin: float = float("inf")

    def decided(self, values: Sequence[float] | Array) -> None:
        """Note that the order of these sums, best first, was relied on."""
        finite = np.asarray(values)[np.isfinite(values)]
        if len(finite) > 1:
            self.margin = min(self.margin, float((finite[:-1] - finite[1:]).min()))


def search(
    model: Decodes,
    source: Packed,
    config: SearchConfig = SearchConfig(),
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Return, for each input in order, its best answers, best first.

    Keeps the `beam` most likely unfinished hypotheses of each input. An input is answered when
    `beam` hypotheses have ended and none unfinished can still rank above the worst returned, or
    at `max_length` (or where the model's positions end). Answered inputs leave the batch. Ties
    go to the hypothesis that came first and to the lower token. `prefixes`, one for each input, are
    what its answers must begin with.
    """
    searches = _search_once(model, source, config, prefixes)
    answers = [_ranked(one.done)[: config.best] for one in searches]
    if len(source) > 1:
        for i, one in enumerate(searches):
            if one.margin < MARGIN[model.dtype]:
                answers[i] = search(model, source.select([i]), config, prefixes[i : i + 1])[0]
    return answers


def _search_once(
    model: Decodes, source: Packed, config: SearchConfig, prefixes: Sequence[Sequence[int]]
) -> list[_Search]:
    bos, eos = model.config.bos_token_id, model.config.eos_token_id
    room = model.config.max_position_embeddings - 1
    limit = min(config.max_length, room)
    if prefixes and len(prefixes) != len(source):
        raise ValueError(f"expected a prefix for each of {len(source)} inputs, got {len(prefixes)}")
    searches = [_Search(prefixes[i] if prefixes else ()) for i in range(len(source))]
    if not searches:
        return []
    state = model.start(source)
    active = list(range(len(source)))  # the input each row of the state belongs to
    tokens = np.full(len(source), bos)
    for length in range(1, limit + 2):
        log_p, state = model.step(state, tokens)
        rows_kept: list[int] = []
        next_tokens: list[int] = []
        next_active: list[int] = []
        for i, rows in _groups(active):
            one = searches[i]
            survivors = _advance(one, log_p[rows], eos, config, last=length > limit)
            if survivors and not _answered(one, config, limit):
                rows_kept += [rows.start + parent for parent, _ in survivors]
                next_tokens += [token for _, token in survivors]
                next_active += [i] * len(survivors)
        if not rows_kept:
            break
        active, tokens = next_active, np.array(next_tokens)
        if rows_kept != list(range(len(log_p))):
            state = state.select(np.array(rows_kept))
    for one in searches:
        one.decided([h.score for h in _ranked(one.done)[: config.best + 1]])
    return searches


def _groups(active: Sequence[int]) -> list[tuple[int, slice]]:
    """Return (input, its rows) for rows that stand grouped by input."""
    groups: list[tuple[int, slice]] = []
    start = 0
    for end in range(1, len(active) + 1):
        if end == len(active) or active[end] != active[start]:
            groups.append((active[start], slice(start, end)))
            start = end
    return groups


def _advance(
    one: _Search, log_p: Array, eos: int, config: SearchConfig, last: bool
) -> list[tuple[int, int]]:
    """Extend one input's hypotheses by a token; return (parent row, token) of those that go on."""
    if last:  # the length has run out: what is there counts as it stands, or ends here
        for (said, total), row in zip(one.beams, log_p, strict=True):
            one.done.append(_hypothesis(said, total + float(row[eos]), False, config))
        return []
    if one.prefix or config.constraints.active:
        rows = zip(log_p, one.beams, strict=True)
        log_p = np.stack(
            [constrain(row, said, config.constraints, one.prefix, eos) for row, (said, _) in rows]
        )
    totals = np.array([total for _, total in one.beams])[:, None] + log_p
    ranking = _top(totals.ravel(), 2 * config.beam + 1)
    candidates = [c for c in ranking[: 2 * config.beam] if np.isfinite(totals.flat[c])]
    survivors: list[tuple[int, int]] = []
    reached = 0
    beams: list[tuple[tuple[int, ...], float]] = []
    for rank, flat in enumerate(candidates):
        parent, token = divmod(int(flat), log_p.shape[1])
        said, total = one.beams[parent][0], float(totals[parent, token])
        if token == eos:
            if rank < config.beam:
                reached = rank
                one.done.append(_hypothesis(said, total, True, config))
        elif len(beams) < config.beam:
            reached = rank
            survivors.append((parent, token))
            beams.append(((*said, token), total))
    one.beams = beams
    one.decided(totals.ravel()[ranking[: reached + 2]])
    return survivors


def _top(values: Array, k: int) -> Array:
    """Return the indices of the k largest values, largest first, ties to the lower index."""
    k = min(k, len(values))
    bound = np.partition(values, len(values) - k)[len(values) - k]
    rows = np.flatnonzero(values >= bound)
    return rows[np.argsort(-values[rows], kind="stable")][:k]


def _hypothesis(
    said: tuple[int, ...], log_p: float, finished: bool, config: SearchConfig
) -> Hypothesis:
    score = log_p / penalty(len(said) + 1, config.length_penalty)
    return Hypothesis(said, log_p, score, finished)


def _ranked(done: list[Hypothesis]) -> list[Hypothesis]:
    return sorted(done, key=lambda h: -h.score)


def _answered(one: _Search, config: SearchConfig, limit: int) -> bool:
    """Whether nothing unfinished can still enter the answers returned."""
    finished = _ranked([h for h in one.done if h.finished])
    if config.beam == 1:
        return bool(finished)
    if len(finished) < config.beam:
        return False
    # log p only falls; the kindest penalty a longer answer can meet is that of the longest
    longest = max(len(said) for said, _ in one.beams) + 1
    kindest = penalty(limit + 1 if config.length_penalty > 0 else longest, config.length_penalty)
    hope, worst = max(total for _, total in one.beams) / kindest, finished[config.best - 1].score
    one.decided(sorted([hope, worst], reverse=True))
    return hope <= worst
