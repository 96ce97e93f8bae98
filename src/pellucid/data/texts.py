"""Texts for a model of one text: each is a pair with an empty source."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pellucid.core.errors import UsageError, UserError
from pellucid.data.files import is_file_of_pairs, read_lines
from pellucid.data.pairs import Splits, TextPair, split_by_hash

_log = logging.getLogger(__name__)


def as_texts(pairs: Splits, same: Callable[[str], str] = str) -> Splits:
    """Take every source and every target as a text, each once, in order.

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
        every = list(dict.fromkeys(texts))
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


def is_text_file(paths: Sequence[Path]) -> bool:
    """Whether these are one text file, a text a line, rather than files of pairs."""
    names = [path.with_suffix("") if path.suffix == ".gz" else path for path in paths]
    return len(names) == 1 and names[0].suffix == ".txt"


def read_texts(
    train: Path,
    valid: Sequence[Path] = (),
    test: Sequence[Path] = (),
    *,
    held_out: float,
    same: Callable[[str], str] = str,
) -> Splits:
    """Read text files, a text a line; empty lines are left out.

    Without validation files the share `held_out` of the texts is held out by hash. Those that
    `same` makes one text are on one side.

    Raises `UserError` for errors in the files and when one side of the split is empty,
    `UsageError` for a file of pairs.
    """
    texts, tested = _read(train), [pair for path in test for pair in _read(path)]
    if valid:
        validation = [pair for path in valid for pair in _read(path)]
        return as_texts(Splits(tuple(texts), tuple(validation), tuple(tested)), same)
    split = split_by_hash(texts, valid=held_out, key=lambda pair: pair.target, same=same)
    if not split.train or (held_out > 0 and not split.valid):
        raise UserError(
            f"{train}: too few texts ({len(texts):,}) to hold out {held_out:.1%} of them for "
            "validation; give a validation file, or another share"
        )
    return as_texts(Splits(split.train, split.valid, tuple(tested)), same)


def _read(path: Path) -> list[TextPair]:
    if is_file_of_pairs(path):
        raise UsageError(
            f"{path}: is a file of pairs, and the texts to learn from are a text file; give "
            "another .txt, a text a line"
        )
    return [TextPair("", (line,)) for line in read_lines(path) if line.strip()]
