"""Pairs of texts, and their split into training, validation and test data.

A split by hash depends only on the texts and on the shares to hold out.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pellucid.core.errors import UsageError, UserError
from pellucid.data.appearance import appearance

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextPair:
    """A source text and its targets: all of them are correct, the first is preferred.

    A text from a file of texts is a source without targets; `as_texts` makes it a target.
    """

    source: str
    targets: tuple[str, ...]

    @property
    def target(self) -> str:
        """The first target; `IndexError` if there is none."""
        return self.targets[0]


@dataclass(frozen=True)
class Splits:
    """Training, validation and test pairs."""

    train: tuple[TextPair, ...]
    valid: tuple[TextPair, ...] = ()
    test: tuple[TextPair, ...] = ()
    first_target_only: bool = False
    """Train on the first target of each pair only; evaluation accepts all of them."""

    @property
    def scored(self) -> tuple[TextPair, ...]:
        """The pairs for the final scores: the test pairs, or else the validation pairs."""
        return self.test or self.valid


def gathered(pairs: Iterable[TextPair]) -> list[TextPair]:
    """Merge pairs with the same source into one, which has the targets of all.

    Sources keep the order of their first pair.

    >>> gathered([TextPair("a", ("x",)), TextPair("b", ("y",)), TextPair("a", ("z", "x"))])
    [TextPair(source='a', targets=('x', 'z')), TextPair(source='b', targets=('y',))]
    """
    found: dict[str, dict[str, None]] = {}
    for pair in pairs:
        found.setdefault(pair.source, {}).update(dict.fromkeys(pair.targets))
    return [TextPair(source, tuple(targets)) for source, targets in found.items()]


def entry(text: str) -> str:
    """Return the `appearance` of a text; a single word loses the number of its entry.

    Lexicons number the further entries of a word, as in word(2).

    >>> entry(" Word(2)")
    'word'
    """
    return re.sub(r"^(\S+)\(\d+\)$", r"\1", appearance(text))


def hash_fraction(text: str) -> float:
    """Hash a text to a number in [0, 1), the same on all machines.

    It is the first 53 bits of the SHA-256 of the text in UTF-8.

    >>> round(hash_fraction("pellucid"), 6)
    0.067004
    """
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def split_by_hash(
    pairs: Iterable[TextPair],
    *,
    valid: float,
    test: float = 0.0,
    key: Callable[[TextPair], str] = lambda pair: pair.source,
    same: Callable[[str], str] = str,
) -> Splits:
    """Split pairs by a hash of their keys; pairs with the same key stay together.

    `valid` and `test` are the expected shares of the keys. By default the side of a key depends on
    the key alone, so that adding or removing pairs moves no others. Keys that `same` maps to one
    text stay together too, on the side of the first of them in code point order; if another key
    becomes the first, they may move. Pairs keep their order. Raises `UsageError` if a share is
    below 0, or the shares add up to 1 or more.

    >>> split = split_by_hash([TextPair(str(n), ("x",)) for n in range(100)], valid=0.1, test=0.1)
    >>> len(split.train), len(split.valid), len(split.test)
    (86, 8, 6)
    """
    if not (valid >= 0 and test >= 0 and valid + test < 1):
        raise UsageError(
            f"the shares held out must be at least 0 and together below 1; got {valid} and {test}"
        )
    keyed = [(pair, text, same(text)) for pair, text in ((pair, key(pair)) for pair in pairs)]
    first: dict[str, str] = {}
    for _, text, group in keyed:
        first[group] = min(text, first.get(group, text))
    sides: dict[str, list[TextPair]] = {"train": [], "valid": [], "test": []}
    for pair, _, group in keyed:
        place = hash_fraction(first[group])
        side = "test" if place < test else "valid" if place < test + valid else "train"
        sides[side].append(pair)
    return Splits(tuple(sides["train"]), tuple(sides["valid"]), tuple(sides["test"]))


def split_text(text: str, held_out: float) -> Splits:
    """Hold out the end of a text, cut between lines; a side without lines has no pair.

    >>> [pair.targets for pair in split_text("a\\nb\\n", 0.5).valid], split_text("a", 1.0).train
    ([()], ())
    """
    lines = text.splitlines(keepends=True)
    cut = round(len(lines) * (1 - held_out))
    first, last = (TextPair("".join(part), ()) for part in (lines[:cut], lines[cut:]))
    return Splits((first,) * bool(first.source), (last,) * bool(last.source))


def report_shared(pairs: Splits, same: Callable[[str], str] = str) -> None:
    """Log a warning that counts the held-out pairs that another part of the data has too.

    Validation pairs are compared with the training pairs, test pairs with both. Two pairs are equal
    if `same` maps their sources to one text, and a target of each to one text.
    """

    held = {same(pair.source) for pair in (*pairs.valid, *pairs.test)}

    def forms(pair: TextPair) -> set[tuple[str, str]]:
        source = same(pair.source)  # most training pairs have another source than any held out
        return {(source, same(target)) for target in pair.targets if source in held}

    seen = {form for pair in pairs.train for form in forms(pair)}
    for side, name, where in (
        (pairs.valid, "validation", "training"),
        (pairs.test, "test", "training or validation"),
    ):
        found = [forms(pair) for pair in side]
        if known := sum(not seen.isdisjoint(some) for some in found):
            _log.warning(
                f"{known:,} of {len(side):,} {name} pairs are in the {where} data too, so their "
                "score says little about new pairs; give pairs that are in no other set"
            )
        seen.update(*found)


def as_texts(pairs: Splits, same: Callable[[str], str] = str, repeated: bool = False) -> Splits:
    """Turn every source and every target into a text of its own, as a pair's target.

    Each text is kept once, in order; `repeated`: as often as it occurs, so that frequent texts stay
    likely. Empty texts are left out. A held-out text that is also a training text is left out, and
    so is a test text that is a validation text; `same` decides which texts are equal. Warnings
    state their numbers. Raises `UserError` if there are test pairs, and no test text is left.

    >>> pairs = Splits((TextPair("hi", ("ho", "hi")),), (TextPair("hi", ("bye",)),))
    >>> [pair.target for pair in as_texts(pairs).train], [p.target for p in as_texts(pairs).valid]
    (['hi', 'ho'], ['bye'])
    """
    seen: set[str] = set()

    def texts(side: Iterable[TextPair], name: str, where: str) -> tuple[TextPair, ...]:
        texts = (text for pair in side for text in (pair.source, *pair.targets) if text)
        every = list(texts if repeated else dict.fromkeys(texts))
        new = [text for text in every if same(text) not in seen]
        seen.update(map(same, new))
        if len(new) < len(every):
            _log.warning(
                f"left out {len(every) - len(new):,} of {len(every):,} {name} texts: the {where} "
                "data has them too"
            )
        return tuple(TextPair("", (text,)) for text in new)

    train = texts(pairs.train, "training", "")
    valid = texts(pairs.valid, "validation", "training")
    test = texts(pairs.test, "test", "training or validation")
    if pairs.test and not test:
        raise UserError(
            "no test text is left: all are training or validation texts too; give other "
            "ones, or none"
        )
    return Splits(train, valid, test)
