"""What people do with a model, and a text that it can read, by its tokenizers and name."""

from __future__ import annotations

import re
from typing import Any, Literal

from pellucid.apps.serve.languages import LANGUAGES
from pellucid.core.errors import UserError
from pellucid.tasks import Task
from pellucid.tasks.masked_lm import MASK

Use = Literal["translate", "chat", "pronounce", "words", "continue", "fill"]

WORD = "transparent"
SOUNDS = re.compile("[\u0250-\u02ff]")
"""Letters of the phonetic alphabet that no spelling has."""


def use_of(pipeline: Any, languages: tuple[str, str] | None) -> Use:
    """Return what a model is for: with a pair of languages in its name it translates.

    One that reads words without spaces pronounces them if it writes phonetic letters.
    """
    task: Task = pipeline
    assert task.kind != "label"  # `serve_model` refuses it
    if task.kind != "answer":
        return task.kind
    if languages is not None:
        return "translate"
    if not pipeline.source.unknown([" "]):
        return "chat"
    return "pronounce" if SOUNDS.search("".join(pipeline.target.vocabulary)) else "words"


def example_for(pipeline: Any, use: Use, languages: tuple[str, str] | None) -> str:
    """Return a short text in a language that the model was most likely trained on.

    It is the one with the fewest unknown characters, then with the fewest tokens a byte: tokenizers
    are short on what they were trained with. Without a tokenizer there is none: "".
    """
    tokenizer = pipeline.source
    if use in ("pronounce", "words"):
        return WORD if not tokenizer.unknown([WORD]) else _known_word(tokenizer)
    if languages is not None and (sentence := LANGUAGES[languages[0]].sentence):
        return sentence
    texts = [one.hole if use == "fill" else one.sentence for one in LANGUAGES.values()]

    def cost(text: str) -> tuple[int, float]:
        plain = text.replace(MASK, "")
        unknown = sum(tokenizer.unknown([plain]).values())
        return unknown, len(tokenizer.encode(plain)) / len(plain.encode())

    try:
        return min(filter(None, texts), key=cost)
    except UserError:
        return ""


def _known_word(tokenizer: Any) -> str:
    """Return the longest word of the languages' sentences that a tokenizer knows; else ""."""
    texts = " ".join(one.sentence for one in LANGUAGES.values()).lower()
    known = [word for word in re.findall(r"\w+", texts) if not tokenizer.unknown([word])]
    return max(known, key=len, default="")
