"""Read the Korean conversations of the package chatterbot-corpus."""

from io import BytesIO
from zipfile import ZipFile

from pellucid.core.errors import optional
from pellucid.data.appearance import one_spaced
from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair


def read_chatterbot(contents: Contents, _: str) -> Splits:
    """Read conversations as pairs of a first turn and all later turns, the targets.

    Pairs with the same question become one: 128 of the 356 questions have several answers. The
    corpus is too small to hold anything out: a model memorises it. Raises `UserError` if PyYAML is
    not installed.
    """
    yaml = optional("yaml", "the Korean conversations need a reader of YAML", extra="demo")
    answers: dict[str, dict[str, None]] = {}  # dict: a set that keeps its order
    wheel = ZipFile(BytesIO(contents(".whl")))
    for name in sorted(name for name in wheel.namelist() if "/korean/" in name):
        for turns in yaml.safe_load(wheel.read(name))["conversations"]:
            question, *others = map(one_spaced, turns)
            answers.setdefault(question, {}).update(dict.fromkeys(others))
    return Splits(tuple(TextPair(question, tuple(others)) for question, others in answers.items()))
