"""The record of one corpus: where it is from, under which terms, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pellucid.data.corpora.sources import RemoteFile
from pellucid.data.pairs import Splits


@dataclass(frozen=True)
class Corpus:
    """A public set of pairs: a new one is a file with such a record, and its row in `CORPORA`."""

    name: str
    about: str
    """One line for tables and model cards."""
    origin: str
    licence: str
    citation: str
    read: Callable[[str], Splits]
    """read(split) -> the pairs; split is one of `splits`, the first by default."""
    files: tuple[RemoteFile, ...]
    """What is downloaded if PELLUCID_DATA does not have it."""
    splits: tuple[str, ...] = ("default",)
    copied: bool = True
    """Whether its terms let a model card have some of its texts."""


def one_space(text: str) -> str:
    """Make every run of white space, no-break spaces included, one space; none at the edges."""
    return " ".join(text.split())
