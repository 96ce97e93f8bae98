"""Turn token ids into labels for pictures; the vocabulary of one side of a model."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pellucid.core.errors import UserError
from pellucid.data import tokenizers

if TYPE_CHECKING:
    from pellucid.data.tokenizers import Tokenizer, TokenizerLike

UNKNOWNS = ("<unk>", "[UNK]")
"""The unknown token in the tokenizers of Pellucid and of other programs."""
SPECIALS = len(tokenizers.SPECIALS)
"""Ids below this are padding, begin, end and unknown, in every Pellucid tokenizer."""
MARKS = {" ": "␣", "\t": "⇥", "\n": "↵", "\r": "␍", "\N{NO-BREAK SPACE}": "⍽"}
LONGEST_CHARACTER = 4
"""The most bytes of a UTF-8 character, so at most this many tokens share one character."""
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


Input = str | Sequence[int]
"""A text, for a model with tokenizers, or token ids."""


class Label(NamedTuple):
    """The text that a picture shows for one token, and the kind of that token."""

    text: str
    kind: Literal["text", "special", "unknown"] = "text"


def visible(text: str) -> str:
    """Replace white space, control and combining characters by visible ones.

    A combining or invisible character, or a rare space, is replaced only if it is the whole text.

    >>> visible("a b"), visible("\\u200d"), visible("\\u0301")
    ('a␣b', 'U+200D', '◌́')
    """
    if len(text) == 1 and text not in MARKS:
        category = unicodedata.category(text)
        if category in ("Mn", "Me", "Mc"):
            return f"◌{text}"
        if category[0] in "CZ":
            return f"U+{ord(text):04X}"
    return legible("".join(MARKS.get(c, c) for c in text))


def legible(text: str) -> str:
    """Replace control characters, and others that XML forbids, by their code points.

    Tabs and newlines (`\\n`) stay; a carriage return is replaced.

    >>> legible("red: \\x1b[31m")
    'red: U+001B[31m'
    """
    return "".join(
        f"U+{ord(c):04X}"
        if (unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n") or c in "\ufffe\uffff"
        else c
        for c in text
    )


def _from_bytes(pieces: Sequence[bytes | Label]) -> list[Label]:
    """Return a label for each byte-level token.

    Items that are labels stay as they are. A token may hold only some bytes of a character.
    """
    made: list[Label] = []
    for special, run in itertools.groupby(pieces, lambda piece: isinstance(piece, Label)):
        some: list[Any] = list(run)
        made += some if special else [Label(text) for text in _decode_run(some)]
    return made


def _decode_run(pieces: Sequence[bytes]) -> list[str]:
    """Decode successive tokens from UTF-8 together; return one text per token.

    A character split over several tokens appears in each of them with the number of its part. An
    invalid byte appears as a hexadecimal number in ‹ ›.
    """
    data = b"".join(pieces)
    owners = [n for n, piece in enumerate(pieces) for _ in piece]
    texts = ["" for _ in pieces]
    loose = [-1 for _ in pieces]  # where each token's run of invalid bytes ends
    start = 0
    for character in data.decode("utf-8", "surrogateescape"):  # an invalid byte: one surrogate
        end = start + len(character.encode("utf-8", "surrogateescape"))
        holders = sorted(set(owners[start:end]))
        for part, holder in enumerate(holders, 1):
            if "\ud800" <= character <= "\udfff":
                byte = f"{data[start]:02X}›"
                joined = loose[holder] == start
                texts[holder] = texts[holder][:-1] + byte if joined else f"{texts[holder]}‹{byte}"
                loose[holder] = end
            elif len(holders) == 1:
                texts[holder] += character
            else:
                texts[holder] += visible(character) + str(part).translate(SUBSCRIPTS)
        start = end
    return [visible(text) for text in texts]


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of the source or target side of a model.

    `name` names a text of this side in error messages, as in "the sentence".
    """

    name: str
    tokenizer: TokenizerLike | None
    """None for a bare model, which takes token ids."""
    entries: int
    """Number of token ids; they are 0 to `entries` − 1."""
    longest: int
    """The maximum number of tokens in a text."""
    specials: Mapping[int, str]
    """Labels of special tokens by id, also those that the tokenizer lacks, such as a mask."""

    @property
    def _namer(self) -> TokenizerLike | None:
        """The tokenizer if it can name tokens; otherwise None, and labels are the ids."""
        return self.tokenizer if self.tokenizer and self.tokenizer.vocab_size else None

    def ids(self, text: Input) -> list[int]:
        """Tokenize a text, or check given token ids; return the ids.

        Raises `UserError` for ids outside the vocabulary, too many ids, and a text without a
        tokenizer.
        """
        if isinstance(text, str):
            if self.tokenizer is None:
                raise UserError(
                    f"{self.name} is text, but a bare model has no tokenizer; pass token ids, or "
                    "what pellucid.load returns"
                )
            ids = self.tokenizer.encode(text)
        else:
            ids = [int(i) for i in text]
            for i in ids:
                if not 0 <= i < self.entries:
                    raise UserError(
                        f"{self.name} holds token {i}; this model has tokens 0 to "
                        f"{self.entries - 1}"
                    )
        if len(ids) > self.longest:
            raise UserError(
                f"{self.name} has {len(ids)} tokens, more than the {self.longest} that this model "
                "can hold; shorten it"
            )
        return ids

    def labels(self, ids: Sequence[int], text: Input = ()) -> list[Label]:
        """Return a label for each token id; without a tokenizer the label is the id.

        Special tokens have names even then. With Pellucid's BPE a token with only some bytes of a
        character shows the character and the number of the part, and an invalid byte its value.
        White space and control characters become visible. An unknown token shows the character or
        word that it stands for if `text`, from which the ids were made, is given. With the
        tokenizer of another program a token shows what that decodes it to alone: � for a part of a
        character, the name of the unknown token for an unknown one.

        >>> from pellucid.data.tokenizers import train_tokenizer
        >>> tokenizer = train_tokenizer(["a b"], kind="bpe", vocab_size=260)
        >>> side = Vocabulary("the sentence", tokenizer, 260, 19, {})
        >>> [label.text for label in side.labels(tokenizer.encode("a 한"))]
        ['a', '␣', '한₁', '한₂', '한₃']
        """
        tokenizer = self._namer
        known = {i: Label(name, "special") for i, name in self.specials.items()}
        if tokenizer is None:
            return [known.get(i) or Label(str(i)) for i in ids]
        kind = getattr(tokenizer, "kind", None)  # None for the tokenizer of another program
        if kind == "bpe":
            _, spelled = tokenizer.spelled
            special = [
                Label(x, "unknown" if x in UNKNOWNS else "special") for x in tokenizers.SPECIALS
            ]
            return _from_bytes([known.get(i) or spelled[i] or special[i] for i in ids])
        own, given = 0, []
        if kind is not None:
            written = text if isinstance(text, str) else ""
            own, given = SPECIALS, cast("Tokenizer", tokenizer).units(written)
        made = []
        for place, (i, shown) in enumerate(zip(ids, tokenizer.tokens(ids), strict=True)):
            if shown in UNKNOWNS:
                label = Label(visible(given[place]) if given else shown, "unknown")
            else:
                label = Label(shown, "special") if i < own else Label(visible(shown))
            made.append(known.get(i, label))
        return made

    def last(self, ids: Sequence[int]) -> Label:
        """Return the label of the last of some ids; earlier ones may hold part of its character."""
        return self.labels(ids[-LONGEST_CHARACTER - 1 :])[-1]

    def text(self, ids: Sequence[int]) -> str:
        """Decode token ids into text; without a tokenizer, join the ids with spaces."""
        return " ".join(map(str, ids)) if self._namer is None else self._namer.decode(ids)


def specials_of(config: Any) -> dict[int, str]:
    """Return the labels of a model's padding, begin and end tokens."""
    return {config.pad_token_id: "<pad>", config.bos_token_id: "<s>", config.eos_token_id: "</s>"}
