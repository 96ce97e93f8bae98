"""What people do with a model, and a text that it can read, by its tokenizers and name."""

from __future__ import annotations

from typing import Any, Literal

from pellucid.apps.serve.languages import LANGUAGES
from pellucid.core.errors import UserError
from pellucid.tasks import Task
from pellucid.tasks.masked_lm import MASK

Use = Literal["translate", "chat", "pronounce", "continue", "fill"]

WORD = "transparent"
PHONETIC = "ə"


def use_of(pipeline: Any, languages: tuple[str, str] | None) -> Use:
    """Return what a model is for: with a pair of languages in its name it translates.

    One that reads words without spaces pronounces them if it writes phonetic letters, or sounds
    with spaces between them.
    """
    task: Task = pipeline
    assert task.kind != "label"  # `serve_model` refuses it
    if task.kind != "answer":
        return task.kind
    if languages is not None:
        return "translate"
    target, spaceless = pipeline.target, pipeline.source.unknown([" "])
    phonetic = spaceless and (target.kind == "word" or not target.unknown([PHONETIC]))
    return "pronounce" if phonetic else "chat"


def example_for(pipeline: Any, use: Use, languages: tuple[str, str] | None) -> str:
    """Return a short text in a language that the model was most likely trained on.

    It is the one with the fewest unknown characters, then with the fewest tokens a byte: tokenizers
    are short on what they were trained with. Without a tokenizer there is none: "".
    """
    if use == "pronounce":
        return WORD
    if languages is not None and (sentence := LANGUAGES[languages[0]].sentence):
        return sentence
    tokenizer = pipeline.source
    texts = [one.hole if use == "fill" else one.sentence for one in LANGUAGES.values()]

    def cost(text: str) -> tuple[int, float]:
        plain = text.replace(MASK, "")
        unknown = sum(tokenizer.unknown([plain]).values())
        return unknown, len(tokenizer.encode(plain)) / len(plain.encode())

    try:
        return min(filter(None, texts), key=cost)
    except UserError:
        return ""
