"""Korean conversations of the package chatterbot-corpus."""

from __future__ import annotations

from io import BytesIO
from zipfile import ZipFile

from pellucid.core.errors import optional
from pellucid.data.corpora.sources import Corpus, RemoteFile, one_space
from pellucid.data.pairs import Splits, TextPair

_CHATTERBOT = RemoteFile(
    "chatterbot_corpus/chatterbot_corpus-1.3.3-py2.py3-none-any.whl",
    "chatterbot-corpus==1.3.3",
    "86de5300afb9a80826386339d3bec79c0a72eb0358abb8327e2ecef5ae0ce154",
)


def _read_chatterbot(split: str) -> Splits:
    """Every later turn of a conversation answers its first: most list several answers.

    There is too little to hold anything out: a model memorises it.
    """
    yaml = optional("yaml", "the Korean conversations need a reader of YAML", extra="demo")
    answers: dict[str, dict[str, None]] = {}  # dict: a set that keeps its order
    wheel = ZipFile(BytesIO(_CHATTERBOT.read(CHATTERBOT_KO.licence)))
    for name in sorted(name for name in wheel.namelist() if "/korean/" in name):
        for turns in yaml.safe_load(wheel.read(name))["conversations"]:
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
    files=(_CHATTERBOT,),
)
