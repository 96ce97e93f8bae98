"""Decoding: the interface of a generating model, the settings of a search, and its results.

`compiled` and `generation` both use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UsageError
from pellucid.core.settings import check_ranges
from pellucid.models.prefix import Prefix

Array = np.ndarray

MOST_PENALTY = 10
"""The largest length penalty: larger ones rank by length alone, and can overflow float64."""
WIDEST = 4096
"""The largest beam: a wider one only fills the memory."""


def limits_of(
    model: Decodes,
    source: Packed,
    max_length: int | Sequence[int],
    prefixes: Sequence[Prefix | None] = (),
) -> Array:
    """Return the maximum number of tokens of the answer to each input: (N,).

    max_length: one number, or one for each input; the tokens with which a prefix writes the end of
    the input again come on top of it. Raises `ValueError` for an input that leaves no room to
    begin, for a prefix that needs more tokens than its answer may have, and for a list of
    max_lengths or of prefixes with more or fewer than one for each input (no prefixes is allowed).
    """
    asked = [max_length] * len(source) if isinstance(max_length, int) else max_length
    for what, given in (("max_length", asked), ("prefix", prefixes or asked)):
        if (count := len(given)) != len(source):
            raise ValueError(f"expected a {what} for each of {len(source)} inputs, got {count}")

    room = np.asarray(model.room(source))
    if len(room) and room.min() < 0:
        raise ValueError(
            f"a text of {int(source.lengths[room.argmin()])} tokens leaves no room for an answer "
            f"among the model's {model.config.max_position_embeddings} positions; shorten it"
        )
    again = [0 if one is None else one.rewritten for one in prefixes] or [0] * len(source)
    most = [min(n, np.iinfo(room.dtype).max // 2) + m for n, m in zip(asked, again, strict=True)]
    limits: Array = np.minimum(room, np.array(most, room.dtype))
    for prefix, limit in zip(prefixes, limits, strict=bool(prefixes)):
        if prefix is not None and (count := prefix.fewest[0]) > limit:
            raise ValueError(f"a prefix of {count} tokens for an answer of at most {limit}")
    return limits


def penalty(length: int, alpha: float) -> float:
    """Return the length penalty ((5 + length) / 6)^α, by which a log-probability is divided.

    Source: Wu et al. 2016 (GNMT), 7.

    >>> penalty(1, 0.6)
    1.0
    """
    return float(((5 + length) / 6) ** alpha)


class Decodes(Protocol):
    """A model that generates token by token."""

    config: Any

    def room(self, source: Packed) -> Array:
        """Return the maximum number of tokens of the answer to each source, (N,).

        A number below 0 means that the source is too long.
        """

    def start(self, source: Packed) -> Any:
        """Return the state before the first token, with one hypothesis per source."""

    def step(self, state: Any, tokens: Array) -> tuple[Array, Any]:
        """Feed a token to every hypothesis; return the next log-probabilities and the new state.

        tokens: (B,). The log-probabilities are (B, V), possibly on another device
        (`core.array.to_host`).
        """


class Hypothesis(NamedTuple):
    """A generated answer: its tokens without begin and end, and its log-probability.

    A sampled answer has `log_p` and `score` 0: they are not computed.
    """

    tokens: tuple[int, ...]
    log_p: float
    """Σ log p of the tokens after constraints, the end token included if it was generated."""
    score: float
    """The score that ranks answers: log p including the end token, even if it was not generated,
    divided by the length penalty."""
    finished: bool
    """Whether the end token was generated; False at the maximum length."""


@dataclass(frozen=True)
class Constraints:
    """Constraints of every answer."""

    repetition_penalty: float = 1.0
    """A token generated before has its log-probability multiplied by this; 1 changes nothing."""
    no_repeat_ngram: int = 0
    """No sequence of this many tokens is generated twice; 0 allows it."""
    forced_bos_token_id: int | None = None
    """Every answer begins with this token, at no cost; BART has one. None: with any."""
    min_length: int = 0
    """Shortest answer, in tokens, the end token not counted."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        check_ranges(self, repetition_penalty="[1, inf)", no_repeat_ngram="[0, inf]")
        check_ranges(self, min_length="[0, inf]", forced_bos_token_id="[0, inf]")

    @property
    def active(self) -> bool:
        """Whether any constraint differs from its default; with all at their defaults none acts."""
        return self != Constraints()

    def forced(self, entries: int) -> int | None:
        """Return `forced_bos_token_id`; None if no token is forced.

        Raises `UsageError` if it is not below `entries`, the size of the vocabulary.
        """
        token = self.forced_bos_token_id
        if token is not None and token >= entries:
            raise UsageError(f"forced_bos_token_id must be a token, below {entries}, got {token}")
        return token


@dataclass(frozen=True)
class SearchConfig:
    """How an answer is searched for."""

    beam: int = 1
    """Hypotheses kept for each input; 1 is greedy search."""
    max_length: int = 128
    """Longest answer, in tokens, the end token not counted."""
    length_penalty: float = 1.0
    """α, from -10 to 10: an answer of n tokens, its end counted, is ranked by
    log p / ((5 + n) / 6)^α; 0 ranks by log p alone."""
    best: int = 1
    """Answers returned for each input, at most `beam`."""
    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        check_ranges(self, beam=f"[1, {WIDEST}]", best="[1, inf]", max_length="[1, inf]")
        check_ranges(self, length_penalty=f"[-{MOST_PENALTY}, {MOST_PENALTY}]")
        if self.best > self.beam:
            raise UsageError(f"best must lie between 1 and beam = {self.beam}, got {self.best}")


GREEDY = SearchConfig()


def constrain(
    log_p: Array,
    generated: Sequence[int],
    constraints: Constraints,
    prefix: Prefix | None,
    eos: int,
    left: int,
) -> Array:
    """Apply constraints to the log-probabilities (V,) of the token after `generated`.

    Forbidden tokens get −inf. Within `prefix` only tokens that agree with it are allowed (none, if
    it cannot be completed any more), and no other constraint acts. A forced first token gets
    probability 1. The repetition penalty, of Keskar et al. 2019 (CTRL, 4.1), multiplies the
    log-probabilities of the tokens generated before, but never that of the end token, `eos`.
    left: the number of tokens that may still be generated.

    Returns a new array, or `log_p` itself where nothing changes. Raises `UsageError` if the forced
    token is not below V.

    >>> constrain(np.log([0.5, 0.25, 0.25]), [0], Constraints(no_repeat_ngram=1), None, 2, 9)
    array([       -inf, -1.38629436, -1.38629436])
    """
    place = len(generated)
    agreeing = None if prefix is None else prefix.allowed(generated, left)
    if agreeing is not None:
        forced = np.full_like(log_p, -np.inf)
        forced[agreeing] = log_p[agreeing]
        return forced
    if not constraints.active:
        return log_p
    forced_first = constraints.forced(len(log_p)) if place == 0 else None
    if forced_first is not None:
        forced = np.full_like(log_p, -np.inf)
        forced[forced_first] = 0.0
        return forced
    log_p = log_p.copy()
    if place < constraints.min_length:
        log_p[eos] = -np.inf
    seen = [token for token in set(generated) if token != eos]
    if constraints.repetition_penalty != 1.0:
        with np.errstate(over="ignore"):  # a huge penalty gives -inf, which is right
            log_p[seen] *= constraints.repetition_penalty
    n = constraints.no_repeat_ngram
    if n:
        last = tuple(generated[place - n + 1 :]) if n > 1 else ()
        runs = (tuple(generated[i : i + n]) for i in range(place - n + 1))
        log_p[[run[-1] for run in runs if run[:-1] == last]] = -np.inf
    return log_p
