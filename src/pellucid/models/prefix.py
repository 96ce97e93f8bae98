"""A text that an answer must begin with, in whatever tokens the model writes it.

One text is written in many ways by byte-level tokens: "the" is one token, or "t" and "he". A prefix
that is cut into tokens by itself allows one of them, and often the wrong one: a model that answers
"there" with one token never writes "the" and "re". So what is prescribed is the bytes. At each step
the tokens that agree with the bytes still to come are allowed: those that the rest begins with, and
those that begin with the rest. Every answer that begins with the text can be written, no other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

FREE = -1
"""The state behind the prefix, where every token is allowed."""
NEVER = 10**9
"""How many tokens the rest of a prefix takes that cannot be written."""

Spelled = Sequence[Sequence[bytes]]
"""The bytes that each token writes at the beginning of a text, and elsewhere."""


@dataclass(frozen=True)
class Prefix:
    """A required beginning of an answer: the allowed tokens, state by state."""

    steps: Sequence[Mapping[int, int]]
    """The state after each token that is allowed in a state, from 0 on; `FREE` behind the end."""
    fewest: Sequence[int]
    """How many tokens, at least, lead from each state to the end."""

    @staticmethod
    def of_text(
        text: bytes,
        spelled: Spelled,
        never: Collection[int] = (),
        frame: Sequence[int] = (),
        closed_to: tuple[bytes, ...] = (),
    ) -> Prefix:
        """Return the prefix of all ways to write a text of one byte or more.

        never: tokens that are not generated, and those that end an answer. frame: tokens that come
        before the text and write nothing. closed_to: characters that would change the end of the
        text, so that none may follow it.

        >>> spelled = [b"", b"t", b"the", b"he", b"there", b"x"]
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
            if extra.startswith(closed_to):
                return None
            if any(one.startswith(extra) for one in closed_to):
                return waiting.setdefault(extra, end + len(waiting))
            return FREE

        for place in range(len(text)):
            rest, found = text[place:], dict[int, int]()
            for token, own in enumerate(spelled[place > 0]):
                if own and token not in never:
                    if rest.startswith(own) and own != rest:
                        found[token] = before + place + len(own)
                    elif own.startswith(rest) and (state := behind(own[len(rest) :])) is not None:
                        found[token] = state
            steps.append(found)
        while len(steps) - end < len(waiting):
            extra = [*waiting][len(steps) - end]
            after = ((token, behind(extra + own)) for token, own in enumerate(spelled[1]))
            steps.append({token: state for token, state in after if state is not None})
        fewest = [NEVER] * end + [0] * len(waiting)
        for state in reversed(range(end)):
            left = (fewest[after] if after != FREE else 0 for after in steps[state].values())
            fewest[state] = min(1 + min(left, default=NEVER), NEVER)
        return Prefix(steps, fewest)

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
