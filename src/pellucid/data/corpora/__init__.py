"""The corpora that recipes name: `CORPORA` has the record of each by its name."""

from __future__ import annotations

from pellucid.core.errors import UsageError
from pellucid.core.parts import Registry
from pellucid.core.settings import nearest
from pellucid.data.corpora.chatbot import CHATBOT_KO, CHATBOT_KO_TOPICS
from pellucid.data.corpora.chatterbot import CHATTERBOT_KO
from pellucid.data.corpora.inflections import INFLECTIONS
from pellucid.data.corpora.multi30k import MULTI30K_DE_EN, MULTI30K_EN_DE
from pellucid.data.corpora.pronunciations import G2P_EN
from pellucid.data.corpora.sources import Corpus
from pellucid.data.pairs import Splits

CORPORA: Registry[Corpus] = Registry(
    (corpus.name, corpus)
    for corpus in (
        CHATTERBOT_KO,
        G2P_EN,
        CHATBOT_KO,
        CHATBOT_KO_TOPICS,
        INFLECTIONS,
        MULTI30K_DE_EN,
        MULTI30K_EN_DE,
    )
)


def find_corpus(name: str) -> Corpus:
    """Return a corpus by its name. Raises `UsageError` with the nearest name that exists."""
    if name not in CORPORA:
        raise UsageError(
            f"no corpus {name!r}{nearest(name, CORPORA)}; there are: {', '.join(CORPORA)}"
        )
    return CORPORA[name]


def load_corpus(name: str, split: str | None = None) -> Splits:
    """Read a corpus, split as named.

    Raises `UsageError` for an unknown name, `UserError` when its data cannot be read or downloaded.
    """
    corpus = find_corpus(name)
    if split is not None and split not in corpus.splits:
        raise UsageError(
            f"corpus {name} has no split {split!r}{nearest(split, corpus.splits)}; "
            f"it has: {', '.join(corpus.splits)}"
        )
    return corpus.read(split or corpus.splits[0])


__all__ = ["CORPORA", "Corpus", "find_corpus", "load_corpus"]
