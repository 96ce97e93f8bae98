"""Read Korean questions and answers, by Youngsook Song."""

from __future__ import annotations

import csv
import io

from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair, split_by_hash

TOPICS = ("everyday", "parting", "love")


def read_topics(contents: Contents, _: str) -> Splits:
    """Read Korean questions with their topics as labels: everyday, parting or love.

    All questions with the same answer are on one side of the split.
    """
    pairs = [
        (TextPair(row["Q"], (TOPICS[int(row["label"])],)), row["A"]) for row in _rows(contents)
    ]
    answers = {id(pair): answer for pair, answer in pairs}
    found = [pair for pair, _ in pairs]
    return split_by_hash(found, valid=0.05, test=0.05, key=lambda pair: answers[id(pair)])


def _rows(contents: Contents) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(contents("ChatbotData.csv").decode("utf-8"), newline=""))


def read_chatbot(contents: Contents, split: str) -> Splits:
    """Read Korean questions with their answers.

    split: "by_answer" keeps all pairs with the same answer on one side, because in a random split
    more than half of the held-out answers also occur in training. "all" trains on all pairs, as
    article 003 does.
    """
    pairs = tuple(TextPair(row["Q"], (row["A"],)) for row in _rows(contents))
    if split == "all":
        return Splits(pairs)
    return split_by_hash(pairs, valid=0.05, test=0.05, key=lambda pair: pair.target)
