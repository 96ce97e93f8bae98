"""Corpora of texts that need no download: given names, and one long text."""

from importlib.resources import files

from pellucid.core.errors import optional
from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair, split_by_hash, split_text

HELD_OUT = 0.05
"""Share of the long text's lines that is held out: the last ones."""


def read_names(contents: Contents, split: str) -> Splits:
    """Read the given names that come with the package; each is a text, split by hash."""
    names = (files("pellucid.data.corpora") / "names.txt").read_text(encoding="utf-8").split()
    return split_by_hash([TextPair(name, ()) for name in names], valid=0.1)


def read_manual(contents: Contents, split: str) -> Splits:
    """Read the language reference that Python's `help` prints, as one long text.

    The last 5 % of its lines are the validation text. Raises `UserError` if this Python lacks it.
    """
    pages = optional("pydoc_data.topics", "the manual is Python's own, which this Python lacks")
    return split_text("\n".join(pages.topics.values()), HELD_OUT)
