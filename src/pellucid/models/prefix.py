"""A text that an answer must begin with, in any tokens that write it.

One text is written in many ways by byte-level tokens: "the" is one token, or "t" and "he". A prefix
that is cut into tokens by itself allows one of them, and often the wrong one: a model that answers
"there" with one token never writes "the" and "re". So what is prescribed is the bytes. At each step
the tokens that agree with the bytes still to come are allowed: those that the rest begins with, and
those that begin with the rest. Every answer that begins with the text can be written, no other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

FREE = -1
"""The state behind the prefix, where every token is allowed."""
NEVER = 10**9
"""How many tokens the rest of a prefix takes that cannot be written."""


class Spelling(list[bytes]):
    """The bytes that each token writes, those that write nothing included."""

    @cached_property
    def longest(self) -> int:
        """The most bytes of a token."""
        return max(map(len, self), default=0)

    @cached_property
    def _tokens(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, own in enumerate(self):
            if own:
                found.setdefault(own, []).append(token)
        return found

    @cached_property
    def _sorted(self) -> list[bytes]:
        return sorted(self._tokens)

    def agreeing(self, text: bytes) -> Iterator[int]:
        """Yield the tokens that a text begins with, and those that begin with it.

        >>> [*Spelling([b"", b"t", b"he", b"the", b"them"]).agreeing(b"the")]
        [1, 3, 4]
        """
        for end in range(1, min(len(text), self.longest + 1)):
            yield from self._tokens.get(text[:end], ())
        for place in range(bisect_left(self._sorted, text), len(self._sorted)):
            if not self._sorted[place].startswith(text):
                return
            yield from self._tokens[self._sorted[place]]

    def reaches(self, text: bytes, length: int) -> bool:
        """Return whether a token that agrees with a text has more than `length` bytes."""
        return any(len(self[token]) > length for token in self.agreeing(text))


Spelled = tuple[Spelling, Spelling]
"""The bytes that each token writes at the beginning of a text, and elsewhere."""


class Table(NamedTuple):
    """A prefix, or several, as compiled search reads it."""

    starts: np.ndarray
    """(states + 1,): where the tokens that are allowed in each state begin; where the last end."""
    tokens: np.ndarray
    after: np.ndarray
    """The state after each of them."""
    fewest: np.ndarray
    """(states,): how many tokens, at least, lead from each to the end."""


@dataclass(frozen=True)
class Prefix:
    """A required beginning of an answer: the allowed tokens, state by state."""

    steps: Sequence[Mapping[int, int]]
    """The state after each token that is allowed in a state, from 0 on; `FREE` behind the end."""
    fewest: Sequence[int]
    """How many tokens, at least, lead from each state to the end."""
    rewritten: int = 0
    """How many tokens of a text that is continued are written again: an answer may have as many
    more."""

    @staticmethod
    def of_text(
        text: bytes,
        spelled: Spelled,
        never: Collection[int] = (),
        frame: Sequence[int] = (),
        closed_to: tuple[bytes, ...] = (),
        rewritten: int = 0,
        ends: int | None = None,
    ) -> Prefix:
        """Return the prefix of all ways to write a text of one byte or more.

        never: tokens that are not generated, and those that end an answer. frame: tokens that come
        before the text and write nothing. closed_to: characters that would change the end of the
        text, so that none may follow it. ends: the end token, where the text is a whole answer.

        >>> spelled = Spelling([b"", b"t", b"the", b"he", b"there", b"x"])
        >>> Prefix.of_text(b"the", (spelled, spelled)).steps
        [{1: 1, 2: -1, 4: -1}, {3: -1}, {}]
        """
        before, end = len(frame), len(frame) + len(text)
        steps: list[dict[int, int]] = [{token: i + 1} for i, token in enumerate(frame)]
        waiting: dict[bytes, int] = {}

        def behind(extra: bytes) -> int | None:
            """Return the state of a text with these bytes behind it; None: they may not be there.

            A state waits for the rest of what may not follow.
            """
            if ends is not None:
                return None if extra else end
            if extra.startswith(closed_to):
                return None
            if any(one.startswith(extra) for one in closed_to):
                return waiting.setdefault(extra, end + len(waiting))
            return FREE

        for place in range(len(text)):
            rest, found = text[place:], dict[int, int]()
            for token in spelled[place > 0].agreeing(rest):
                own = spelled[place > 0][token]
                if len(own) < len(rest):
                    found[token] = before + place + len(own)
                elif (state := behind(own[len(rest) :])) is not None:
                    found[token] = state
            steps.append({token: found[token] for token in sorted(found) if token not in never})
        while len(steps) - end < len(waiting):
            extra = [*waiting][len(steps) - end]
            after = ((token, behind(extra + own)) for token, own in enumerate(spelled[1]))
            steps.append({token: state for token, state in after if state is not None})
        if ends is not None:
            steps.append({ends: FREE})
        fewest = [NEVER] * end + [0] * (len(steps) - end)
        for state in reversed(range(end)):
            left = (fewest[after] if after != FREE else 0 for after in steps[state].values())
            fewest[state] = min(1 + min(left, default=NEVER), NEVER)
        return Prefix(steps, fewest, rewritten)

    @cached_property
    def table(self) -> Table:
        """The prefix as compiled search reads it."""
        counts = [len(step) for step in self.steps]
        return Table(
            np.cumsum([0, *counts]),
            np.array([token for step in self.steps for token in step], np.int64),
            np.array([after for step in self.steps for after in step.values()], np.int64),
            np.array(self.fewest, np.int64),
        )

    def allowed(self, generated: Sequence[int], left: int) -> list[int] | None:
        """Return the tokens that may follow those generated; None: all may.

        left: how many more tokens an answer may have, this one counted: one after which the rest
        could not be written in those that remain is not allowed.
        """
        state = 0
        for token in generated:
            if state == FREE:
                return None
            state = self.steps[state][token]
        if state == FREE:
            return None
        return [
            token
            for token, after in self.steps[state].items()
            if after == FREE or self.fewest[after] < left
        ]


def joined(prefixes: Sequence[Prefix]) -> tuple[Table, list[int]]:
    """Return several prefixes as one table, and the first state of each in it."""
    tables, starts, first, tokens = [prefix.table for prefix in prefixes], list[int](), 0, 0
    parts: list[list[np.ndarray]] = [[np.zeros(1, np.int64)], [], [], []]
    for table in tables:
        starts.append(first)
        after = np.where(table.after == FREE, FREE, table.after + first)
        moved = Table(table.starts[1:] + tokens, table.tokens, after, table.fewest)
        for part, own in zip(parts, moved, strict=True):
            part.append(own)
        first += len(table.fewest)
        tokens += len(table.tokens)
    none = [np.zeros(0, np.int64)]
    return Table(*(np.concatenate(part or none) for part in parts)), starts
