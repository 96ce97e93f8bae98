"""Splits of texts, and the split of them that depends on nothing but the texts."""

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
    """A source text and its targets: all are correct, the first is preferred."""

    source: str
    targets: tuple[str, ...]

    @property
    def target(self) -> str:
        """The first target."""
        return self.targets[0]


@dataclass(frozen=True)
class Splits:
    """Training, validation and test pairs."""

    train: tuple[TextPair, ...]
    valid: tuple[TextPair, ...] = ()
    test: tuple[TextPair, ...] = ()
    first_target_only: bool = False
    """Train on each pair's first target only; evaluation accepts all."""

    @property
    def scored(self) -> tuple[TextPair, ...]:
        """The pairs of the final scores: the test pairs, else the validation pairs."""
        return self.test or self.valid


def gathered(pairs: Iterable[TextPair]) -> list[TextPair]:
    """Put the targets of pairs with one source into one pair, in the order of the first of each.

    >>> gathered([TextPair("a", ("x",)), TextPair("b", ("y",)), TextPair("a", ("z", "x"))])
    [TextPair(source='a', targets=('x', 'z')), TextPair(source='b', targets=('y',))]
    """
    found: dict[str, dict[str, None]] = {}
    for pair in pairs:
        found.setdefault(pair.source, {}).update(dict.fromkeys(pair.targets))
    return [TextPair(source, tuple(targets)) for source, targets in found.items()]


def entry(text: str) -> str:
    """Return a text as people see it, `appearance`, and word(2) of a lexicon as the word.

    >>> entry(" Word(2)")
    'word'
    """
    return re.sub(r"^(\S+)\(\d+\)$", r"\1", appearance(text))


def hash_fraction(text: str) -> float:
    """Return a number in [0, 1) that is a function of the text alone, the same everywhere.

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
    """Split so that all pairs with the same key are on one side, which depends on the key alone.

    `valid` and `test` are the expected shares of the keys; adding or removing pairs moves no other.
    Keys that `same` makes one text go together, where the first of them in code point order
    would go by itself: a set in which no two keys are one text is split as without `same`.

    Raises `UsageError` when the shares leave nothing to train on.

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


def report_shared(pairs: Splits, same: Callable[[str], str] = str) -> None:
    """Warn of held-out pairs that are in the training data too, or in both held-out sets.

    Two pairs are one when `same` makes their sources one text, and a target of each.
    """

    def forms(pair: TextPair) -> set[tuple[str, str]]:
        return {(same(pair.source), same(target)) for target in pair.targets}

    seen = {form for pair in pairs.train for form in forms(pair)}
    for side, name, where in (
        (pairs.valid, "validation", "training"),
        (pairs.test, "test", "training or validation"),
    ):
        found = [forms(pair) for pair in side]
        if known := sum(not seen.isdisjoint(some) for some in found):
            _log.warning(
                "%s of %s %s pairs are in the %s data too, so their score says little about new "
                "pairs; give pairs that are in no other set",
                f"{known:,}",
                f"{len(side):,}",
                name,
                where,
            )
        seen.update(*found)


def as_texts(pairs: Splits, same: Callable[[str], str] = str, repeated: bool = False) -> Splits:
    """Take every source and every target as a text, each once, in order: the target of a pair.

    repeated: as often as it comes, so that what is frequent is likely.

    A training text, or one that `same` makes equal to it, is no longer held out, though one of its
    pairs was; nor is a validation text a test text. Warnings say how many.

    Raises `UserError` when that leaves nothing to test on.

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
                "left out %s of %s %s texts: the %s data has them too",
                f"{len(every) - len(new):,}",
                f"{len(every):,}",
                name,
                where,
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
