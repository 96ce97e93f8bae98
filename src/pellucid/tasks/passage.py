"""A text in pieces that a model answers one by one, and what is kept between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pellucid.data.appearance import INVISIBLE, WHITE

_SENTENCE = re.compile("[.!?…؟۔।]+[\"'”’»)\\]]*(?=\\s)|[。！？]+[」』”’）\"')\\]]*")
"""A mark that ends a sentence and closing quotes or brackets, before white space; the marks of
Chinese and Japanese need none after them."""
_NO_END = re.compile(
    r"(?:^|[\s(])(?:\d+|(?:[a-z]\.)*[a-z]|dr|mr|mrs|ms|prof|st|nr|no|ca|vs)\.$", re.I
)
"""Letters alone, numbers and titles: a full stop behind them ends no sentence."""
_LINES = re.compile(r"(\r\n|[\n\v\f\r\x85\u2028\u2029])")
_UNSEEN = re.compile(f"(?<![^{WHITE}])[{INVISIBLE}]+")
"""Invisible characters at the edge of a word; those inside an emoji follow something visible."""


def patterns() -> dict[str, str]:
    """Return the patterns by which a text is split, for other programs."""
    own = {"sentence": _SENTENCE, "no_end": _NO_END, "lines": _LINES, "unseen": _UNSEEN}
    return {name: pattern.pattern for name, pattern in own.items()}


def lines(text: str) -> list[str]:
    """Return the lines of a text and, between them, what ends them."""
    return _LINES.split(text)


def sentences(text: str) -> list[str]:
    """Return the sentences of a line, each with the white space before it.

    >>> sentences('He said "no." Dr. No, on 3. May!  So.')
    ['He said "no."', ' Dr. No, on 3. May!', '  So.']
    """
    matches = _SENTENCE.finditer(text)
    ends = [m.end() for m in matches if not _NO_END.search(text, 0, m.start() + 1)]
    starts = [0, *ends]
    found = [text[a:b] for a, b in zip(starts, [*ends, len(text)], strict=True)]
    return [sentence for sentence in found if sentence]


def sentences_together(texts: Sequence[str]) -> int:
    """Return the most sentences that at least one text in twenty has, or more of them.

    >>> sentences_together(["One."] * 18 + ["One. Two."] * 2)
    2
    """
    counts = sorted((len(sentences(text.strip())) for text in texts), reverse=True)
    return max(1, counts[max(0, -(-len(counts) // 20) - 1)]) if counts else 1


def columns_of(texts: Iterable[str]) -> int:
    """Return how many columns all texts have, with tabs between them; 1 where they differ.

    >>> columns_of(["walk\\tV;PST", "mouse\\tN;PL"])
    2
    """
    counts = {text.count("\t") + 1 for text in texts}
    return counts.pop() if len(counts) == 1 else 1


class Passage(NamedTuple):
    """Pieces of a text, and what is kept before, between and behind them."""

    pieces: list[str]
    kept: list[str]
    """One more than there are pieces."""

    @staticmethod
    def of(parts: Sequence[str], reads: Callable[[str], bool] = bool) -> Passage:
        """Take parts of a text as pieces, without white space round them, and keep the others.

        Blanks at the ends of the text go, if it has a piece, and invisible characters at the edges
        of pieces. reads: whether a part is a piece.
        """
        found = Passage([], [""])
        for part in parts:
            core = part.strip()
            if core and reads(core):
                before, _, behind = part.partition(core)
                found.kept[-1] += before
                found.pieces.append(core)
                found.kept.append(behind)
            else:
                found.kept[-1] += part
        found.kept[:] = [_UNSEEN.sub("", part) for part in found.kept]
        if found.pieces:
            found.kept[0] = re.sub(r"^[^\S\r\n]+", "", found.kept[0])
            found.kept[-1] = re.sub(r"[^\S\r\n]+\Z", "", found.kept[-1])
        return found

    def joined(self, answers: Sequence[str]) -> str:
        """Return the answers to its pieces with what is kept of the text.

        >>> Passage.of(["Ja.", " Nein.", "\\n"]).joined(["Yes.", "No."])
        'Yes. No.\\n'
        """
        each = (answer + self.behind(n, answer) for n, answer in enumerate(answers))
        return self.kept[0] + "".join(each)

    def begun(self, prefix: str, together: int | None = 1) -> list[str]:
        """Return the answers to the first pieces that a prefix has whole, and what begins the next.

        It has a whole one where its sentences or lines end as the pieces do: what is kept behind
        the piece follows. together: how many sentences a piece has; None: all of a line.

        >>> Passage.of(["Ja.", " Nein.", "\\n", "Oh."]).begun("Yes. No.\\nO")
        ['Yes.', 'No.', 'O']
        """
        whole: list[str] = []
        rest = prefix.removeprefix(self.kept[0])
        while len(whole) + 1 < len(self.pieces):
            answer = "".join(sentences(lines(rest)[0])[:together])
            found = answer + self.behind(len(whole), answer)
            if answer in ("", rest) or not rest.startswith(found):
                break
            whole.append(answer)
            rest = rest[len(found) :]
        return [*whole, rest]

    def behind(self, number: int, answer: str) -> str:
        """Return the text after the answer to a piece: as kept from the source, else a blank."""
        kept = self.kept[number + 1]
        abut = not kept and number + 1 < len(self.pieces) and answer[-1:] not in "。！？"
        return " " if abut else kept
