"""Korean questions and answers by Youngsook Song."""

from __future__ import annotations

import csv
import io

from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair, split_by_hash

TOPICS = ("everyday", "parting", "love")


def read_topics(contents: Contents, _: str) -> Splits:
    """Return the questions with their topics, all of one answer on one side."""
    pairs = [
        (TextPair(row["Q"], (TOPICS[int(row["label"])],)), row["A"]) for row in _rows(contents)
    ]
    answers = {id(pair): answer for pair, answer in pairs}
    found = [pair for pair, _ in pairs]
    return split_by_hash(found, valid=0.05, test=0.05, key=lambda pair: answers[id(pair)])


def _rows(contents: Contents) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(contents("ChatbotData.csv").decode("utf-8"), newline=""))


def read_chatbot(contents: Contents, split: str) -> Splits:
    """`by_answer` keeps all rows of one answer on one side: in a random split more than half of the
    held-out answers are word for word in the rest. `all` trains on every row, as article 003 does.
    """
    pairs = tuple(TextPair(row["Q"], (row["A"],)) for row in _rows(contents))
    if split == "all":
        return Splits(pairs)
    return split_by_hash(pairs, valid=0.05, test=0.05, key=lambda pair: pair.target)
