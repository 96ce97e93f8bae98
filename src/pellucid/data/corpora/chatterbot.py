"""Korean conversations of the package chatterbot-corpus."""

from __future__ import annotations

from pellucid.core.errors import optional
from pellucid.data.corpora.corpus import Corpus, one_space
from pellucid.data.corpora.sources import PackageFiles
from pellucid.data.pairs import Splits, TextPair

_CHATTERBOT = PackageFiles(
    "chatterbot-corpus",
    "1.3.3",
    "chatterbot_corpus/data/korean/*.yml",
    "e6402b98c920b5f8faf4095cc342f560e571399487b922ca63c6781f27868c36",
)


def _read_chatterbot(split: str) -> Splits:
    """Every later turn of a conversation answers its first: most list several answers.

    There is too little to hold anything out: a model memorises it.
    """
    yaml = optional("yaml", "the Korean conversations need a reader of YAML", extra="demo")
    answers: dict[str, dict[str, None]] = {}  # dict: a set that keeps its order
    for data in _CHATTERBOT.read().values():
        for turns in yaml.safe_load(data)["conversations"]:
            question, *others = map(one_space, turns)
            answers.setdefault(question, {}).update(dict.fromkeys(others))
    return Splits(tuple(TextPair(question, tuple(others)) for question, others in answers.items()))


CHATTERBOT_KO = Corpus(
    name="chatterbot-ko",
    about="Korean questions and answers, 356 questions with 696 answers, no held-out part",
    origin="the Python package chatterbot-corpus 1.3.3, data/korean",
    licence="BSD-3-Clause, Gunther Cox",
    citation="Gunther Cox, ChatterBot Corpus",
    read=_read_chatterbot,
)
