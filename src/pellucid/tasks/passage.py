"""Split a text into pieces that a model answers one by one, and join the answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pellucid.data.appearance import INVISIBLE, WHITE

_SENTENCE = re.compile("[.!?…؟۔।]+[\"'”’»)\\]]*(?=\\s)|[。！？]+[」』”’）\"')\\]]*")
"""The end of a sentence: its mark and closing quotes or brackets, before white space; Chinese and
Japanese marks need no white space."""
_NO_END = re.compile(
    r"(?:^|[\s(])(?:\d+|(?:[a-z]\.)*[a-z]|dr|mr|mrs|ms|prof|st|nr|no|ca|vs)\.$", re.I
)
"""Single letters, numbers and titles: a full stop after them does not end a sentence."""
_LINES = re.compile(r"(\r\n|[\n\v\f\r\x85\u2028\u2029])")
_UNSEEN = re.compile(f"(?<![^{WHITE}])[{INVISIBLE}]+")
"""Invisible characters at the beginning of a word; inside an emoji they follow a visible
character."""


def patterns() -> dict[str, str]:
    """Return the regular expressions that split a text; the HTML page uses them too."""
    own = {"sentence": _SENTENCE, "no_end": _NO_END, "lines": _LINES, "unseen": _UNSEEN}
    return {name: pattern.pattern for name, pattern in own.items()}


def lines(text: str) -> list[str]:
    """Split a text into its lines and, between them, the line ends."""
    return _LINES.split(text)


def sentences(text: str) -> list[str]:
    """Split a line into its sentences, each with the white space before it.

    White space at the end of the line is a part of its own.

    >>> sentences('He said "no." Dr. No, on 3. May!  So.')
    ['He said "no."', ' Dr. No, on 3. May!', '  So.']
    """
    matches = _SENTENCE.finditer(text)
    ends = [m.end() for m in matches if not _NO_END.search(text, 0, m.start() + 1)]
    starts = [0, *ends]
    found = [text[a:b] for a, b in zip(starts, [*ends, len(text)], strict=True)]
    return [sentence for sentence in found if sentence]


def sentences_together(texts: Sequence[str]) -> int:
    """Return the largest n such that at least one text in twenty has n or more sentences.

    It is at least 1.

    >>> sentences_together(["One."] * 18 + ["One. Two."] * 2)
    2
    """
    counts = sorted((len(sentences(text.strip())) for text in texts), reverse=True)
    return max(1, counts[max(0, -(-len(counts) // 20) - 1)]) if counts else 1


def columns_of(texts: Iterable[str]) -> int:
    """Return the number of tab-separated columns that all texts have.

    1 if they differ, and without texts.

    >>> columns_of(["walk\\tV;PST", "mouse\\tN;PL"])
    2
    """
    counts = {text.count("\t") + 1 for text in texts}
    return counts.pop() if len(counts) == 1 else 1


class Passage(NamedTuple):
    """Pieces of a text, and the text before, between and after them, which is copied."""

    pieces: list[str]
    kept: list[str]
    """The text around the pieces: one entry more than there are pieces."""

    @staticmethod
    def of(parts: Sequence[str], reads: Callable[[str], bool] = bool) -> Passage:
        """Make a passage of the parts of a text: a part is a piece, or is copied.

        White space around a piece is copied too. From the copied text invisible characters are
        removed at its beginning and after white space; if there is a piece, so are blanks, but not
        line ends, at both ends of the whole text. reads: whether a part that is not blank is a
        piece; default, each is.
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
        """Join the answers to all pieces with the copied text around them.

        >>> Passage.of(["Ja.", " Nein.", "\\n"]).joined(["Yes.", "No."])
        'Yes. No.\\n'
        """
        each = (answer + self.behind(n, answer) for n, answer in enumerate(answers))
        return self.kept[0] + "".join(each)

    def begun(self, prefix: str, together: int | None = 1) -> list[str]:
        """Split a prefix of the joined answers into whole first answers and the rest.

        An answer is whole if the prefix continues after it with the text that follows its piece.
        together: number of sentences in a piece; None: a whole line.

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
        """Return the text to put after the answer to a piece: as in the source, or a blank.

        The blank separates answers whose pieces touched, except after an empty answer and after a
        Chinese or Japanese mark.
        """
        kept = self.kept[number + 1]
        abut = not kept and number + 1 < len(self.pieces) and answer[-1:] not in "。！？"
        return " " if abut else kept
