"""Korean questions and answers by Youngsook Song."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

from pellucid.data.corpora.sources import Corpus, RemoteFile
from pellucid.data.pairs import Splits, TextPair, split_by_hash

_SONGYS = RemoteFile(
    "chatbot_ko/ChatbotData.csv",
    "https://raw.githubusercontent.com/songys/Chatbot_data/"
    "4cf20d13fc46f5037fd1c531cd566e2dd9f72974/ChatbotData.csv",
    "287eb129695b577321c80ad397bb3c2279164d4ca577874d129fd3db5b30afe2",
)


TOPICS = ("everyday", "parting", "love")


def _read_topics(_: str) -> Splits:
    """Return the questions with their topics, all of one answer on one side."""
    pairs = [(TextPair(row["Q"], (TOPICS[int(row["label"])],)), row["A"]) for row in _rows()]
    answers = {id(pair): answer for pair, answer in pairs}
    found = [pair for pair, _ in pairs]
    return split_by_hash(found, valid=0.05, test=0.05, key=lambda pair: answers[id(pair)])


def _rows() -> csv.DictReader[str]:
    text = _SONGYS.read(CHATBOT_KO.licence).decode("utf-8")
    return csv.DictReader(io.StringIO(text, newline=""))


def _read_chatbot(split: str) -> Splits:
    """`by_answer` keeps all rows of one answer on one side: in a random split more than half of the
    held-out answers are word for word in the rest. `all` trains on every row, as article 003 does.
    """
    pairs = tuple(TextPair(row["Q"], (row["A"],)) for row in _rows())
    if split == "all":
        return Splits(pairs)
    return split_by_hash(pairs, valid=0.05, test=0.05, key=lambda pair: pair.target)


CHATBOT_KO = Corpus(
    name="chatbot-ko",
    about="Korean questions and answers of everyday life, parting and love, 11,823 rows",
    origin="songys/Chatbot_data on GitHub, commit 4cf20d1, ChatbotData.csv",
    licence="MIT, Youngsook Song",
    citation="Youngsook Song (2018), Chatbot_data_for_Korean v1.0",
    read=_read_chatbot,
    splits=("by_answer", "all"),
    files=(_SONGYS,),
)

CHATBOT_KO_TOPICS = replace(
    CHATBOT_KO,
    name="chatbot-ko-topics",
    about="Topics of Korean questions: everyday life, parting or love",
    read=_read_topics,
    splits=("by_answer",),
)
