"""Force an answer to begin with a given text, in any tokenization of that text.

Byte-level tokens can spell a text in many ways: "the" is one token, or "t" and "he". Tokenizing the
prefix alone would allow one of these ways, often the wrong one: a model that writes "there" as one
token never writes "the" and then "re". So the prefix is a sequence of bytes. At each step a token
is allowed if it is a prefix of the bytes still to come, or begins with all of them. Then exactly
the answers that begin with the text can be generated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

FREE = -1
"""The state after the end of the prefix, where every token is allowed."""
NEVER = 10**9
"""The number of tokens still needed in a state from which the prefix cannot be completed."""


class Spelling(list[bytes]):
    """The bytes of each token, by token id; empty for special tokens."""

    @cached_property
    def longest(self) -> int:
        """The length of the longest token in bytes."""
        return max(map(len, self), default=0)

    @cached_property
    def _tokens(self) -> dict[bytes, list[int]]:
        """The tokens that have each byte string."""
        found: dict[bytes, list[int]] = {}
        for token, own in enumerate(self):
            if own:
                found.setdefault(own, []).append(token)
        return found

    @cached_property
    def _sorted(self) -> list[bytes]:
        return sorted(self._tokens)

    def agreeing(self, text: bytes) -> Iterator[int]:
        """Yield the tokens that are a prefix of the text, and those that have it as a prefix.

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
        """Return whether a token that agrees with a text is longer than `length` bytes."""
        return any(len(self[token]) > length for token in self.agreeing(text))


Spelled = tuple[Spelling, Spelling]
"""The bytes of each token at the beginning of a text, and anywhere else in it."""


class Table(NamedTuple):
    """One or several prefixes in flat arrays, for compiled search."""

    starts: np.ndarray
    """(states + 1,): `tokens[starts[s] : starts[s + 1]]` are the tokens allowed in state s."""
    tokens: np.ndarray
    after: np.ndarray
    """The state after each of `tokens`."""
    fewest: np.ndarray
    """The minimum number of tokens from each state to the end of the prefix, (states,)."""


@dataclass(frozen=True)
class Prefix:
    """A required beginning of an answer, as a finite automaton over tokens."""

    steps: Sequence[Mapping[int, int]]
    """For each state, the allowed tokens and the state after each; `FREE` after the end."""
    fewest: Sequence[int]
    """The minimum number of tokens from each state to the end of the prefix."""
    rewritten: int = 0
    """Tokens of a continued text that the answer writes again; it may be longer by that many."""

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
        """Build the prefix that allows every tokenization of a non-empty text.

        text: its bytes. spelled: the bytes of each token, at the beginning of a text and anywhere
        else. never: tokens that must not occur within the text (suppressed tokens, end tokens).
        frame: special tokens before the text. closed_to: characters that must not follow the text,
        since they would change its last character. rewritten: as the attribute. ends: the end
        token, if the text is the whole answer.

        >>> spelled = Spelling([b"", b"t", b"the", b"he", b"there", b"x"])
        >>> Prefix.of_text(b"the", (spelled, spelled)).steps
        [{1: 1, 2: -1, 4: -1}, {3: -1}, {}]
        """
        before, end = len(frame), len(frame) + len(text)
        steps: list[dict[int, int]] = [{token: i + 1} for i, token in enumerate(frame)]
        waiting: dict[bytes, int] = {}

        def behind(extra: bytes) -> int | None:
            """Return the state after the text and these extra bytes, or None if they are forbidden.

            If the bytes could be the beginning of a forbidden character, the state waits for more.
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
        """The prefix as flat arrays."""
        counts = [len(step) for step in self.steps]
        return Table(
            np.cumsum([0, *counts]),
            np.array([token for step in self.steps for token in step], np.int64),
            np.array([after for step in self.steps for after in step.values()], np.int64),
            np.array(self.fewest, np.int64),
        )

    def allowed(self, generated: Sequence[int], left: int) -> list[int] | None:
        """Return the tokens that may follow those generated, or None if all may.

        `generated` must agree with the prefix. left: the number of tokens that may still be
        generated, including this one. A token after which the prefix could not be completed in the
        remaining number is not allowed, so the list may be empty.
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
    """Concatenate the tables of several prefixes; return the table and each one's first state."""
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
