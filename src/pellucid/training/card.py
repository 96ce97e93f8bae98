"""Write and read the model card, the README.md of a model folder."""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from pellucid.core.settings import flat
from pellucid.data.corpora import find_corpus
from pellucid.data.pairs import TextPair
from pellucid.models.quantize import WeightFormat
from pellucid.tasks import task_of
from pellucid.tasks.masked_lm import MASK
from pellucid.tasks.scores import Scores
from pellucid.training.config import DataConfig, RunConfig, load_recipe, recipe_names

SCORES_HEADING, NO_SCORES = "## Scores on held-out data", "None were taken."
EXAMPLES, LONGEST_EXAMPLE = 3, 60
EXAMPLES_HEADING, NO_EXAMPLES = "## Examples", "None were kept."
_SCORES = re.compile(rf"^({SCORES_HEADING}\n)((?:(?!#).+\n?|\n)*)", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)


def card(
    folder: Path,
    config: RunConfig,
    scores: Scores | None,
    examples: Sequence[str] = (),
    unknown: str = "",
) -> str:
    """Return the model card of a run in Markdown, as Hugging Face shows cards.

    folder: the run folder, whose name is the title. scores: on held-out data, if there are any.
    examples: texts to try the model with. unknown: a sentence on targets that the model cannot
    generate, or "". The description of a recipe is about its own corpus, so a model trained on
    other files has none, unless the user wrote one.
    """
    about = config.description
    if config.data.train:
        if about in (load_recipe(name).description for name in recipe_names()):
            about = ""
        data = [f"Files of the user's own: {', '.join(p.name for p in config.data.train)}."]
    else:
        corpus = find_corpus(config.data.corpus)
        data = [
            f"{corpus.about}. Origin: {corpus.origin}. Licence: {corpus.licence}. "
            f"Cite: {corpus.citation}."
        ]
    if config.start is not None:
        kind = config.start.model_type or "Pellucid"
        data.append(
            f"It began from the model in {config.start.folder.resolve().name} ({kind}, SHA-256 "
            f"{config.start.sha256[:12]}…), with all that it had learnt."
        )
    data += [unknown] if unknown else []
    template = files("pellucid.training").joinpath("card.md").read_text(encoding="utf-8")
    return template.format(
        title=folder.resolve().name,
        about=f"{task_of(config.model).about} {about}".strip(),
        scores="\n".join(_table("score", "value", scores.written() if scores else {})),
        examples="\n".join(f"- {text}" for text in examples) or NO_EXAMPLES,
        data="\n".join(f"- {line}" for line in data),
        folder=shlex.quote(str(folder)),
        settings="\n".join(_table("setting", "value", flat(config.as_mapping()))),
    )


def examples_of(kind: str, data: DataConfig, pairs: Sequence[TextPair]) -> list[str]:
    """Return up to three short held-out texts of one line as examples for a model card.

    kind: `Task.kind`. For a model that continues texts, their first halves; for one that fills
    masks, with a mask. A text is a pair's source, or its target if the source is empty. There are
    none for the user's own files, because a model may be given to others, and none for a corpus
    whose terms forbid copies.

    >>> data = DataConfig(corpus="g2p-en", max_tokens=11)
    >>> examples_of("continue", data, [TextPair("", ("a b c d",))])
    ['a b']
    >>> examples_of("fill", data, [TextPair("", ("a b c",))])
    ['a [MASK] c']
    """
    if data.train or not find_corpus(data.corpus).copied:
        return []
    texts = dict.fromkeys(pair.source or pair.target for pair in pairs)
    chosen = [t for t in texts if len(t) <= LONGEST_EXAMPLE and "\n" not in t][:EXAMPLES]
    if kind not in ("continue", "fill"):
        return chosen
    made = []
    for words in map(str.split, chosen):
        middle = len(words) // 2
        rest = [MASK, *words[middle + 1 :]] if kind == "fill" else []
        made.append(" ".join(words[:middle] + rest))
    return [text for text in made if text]


def about_and_examples(card: str) -> tuple[str, list[str]]:
    """Read the paragraph under the title, as one line, and the examples of a model card.

    "" without such a paragraph, [] without examples. What is above the title is skipped.

    >>> about_and_examples("# m\\n\\nIt reads.\\n\\n## Examples\\n\\n- a b\\n- c\\n\\n## Data\\n")
    ('It reads.', ['a b', 'c'])
    """
    body = card.partition("\n# ")[2] if not card.startswith("# ") else card
    about = " ".join(body.partition("\n\n")[2].partition("\n\n")[0].splitlines())
    section = card.partition(f"{EXAMPLES_HEADING}\n")[2].partition("\n#")[0]
    texts = [line.removeprefix("- ") for line in section.splitlines() if line.startswith("- ")]
    return about if not about.startswith("#") else "", texts


def with_scores(card: str, scores: Mapping[str, str]) -> str:
    """Return a card with these scores in its table.

    scores: text by name. Scores of the same names are replaced. All other text stays, except the
    text "None were taken." and, when no earlier score is left, the note of `note_quantized`. A card
    without a table gets one, under its heading or else at the end.
    """
    if not _SCORES.search(card):
        card = card.rstrip("\n") + f"\n\n{SCORES_HEADING}\n"
    made = dict(zip(scores, _table("score", "value", scores)[2:], strict=True))

    def changed(section: re.Match[str]) -> str:
        heading, body = section.groups()
        table = _TABLE.search(body)
        old = table[0].splitlines() if table else ["| score | value |", "|---|---|"]
        if made.keys() >= {row.split("|")[1].strip() for row in old[2:]}:
            body = _NOTE.sub("", body)
        rows = [made.pop(row.split("|")[1].strip(), row) for row in old[2:]]
        new = "\n".join([*old[:2], *rows, *made.values()]) + "\n"
        if table:
            return heading + body[: table.start()] + new + body[table.end() :]
        if NO_SCORES in body:
            return heading + body.replace(f"{NO_SCORES}\n", new)
        return f"{heading}\n{new}{body}"

    return _SCORES.sub(changed, card, count=1)


def note_quantized(card: str, weights: WeightFormat) -> str:
    """Return a card with a note that its scores were computed before the weights were quantized.

    weights: the format that they are stored in. A card without scores, with this note, or for
    weights in float32, is returned unchanged.
    """
    note = _note(weights)
    if weights == "float32" or note in card:
        return card
    noted = partial(_TABLE.sub, rf"\g<0>\n{note}\n", count=1)
    return _SCORES.sub(lambda section: noted(section[0]), card, count=1)


def _note(weights: str) -> str:
    return (
        f"Training scored the weights before they were stored as {weights}; `pellucid evaluate` "
        "scores them as they are stored."
    )


_NOTE = re.compile(rf"\n{_note('[a-z0-9]+')}\n")


def _table(first: str, second: str, rows: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table."""
    if not rows:
        return [NO_SCORES]
    body = [
        f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in rows.items()
    ]
    return [f"| {first} | {second} |", "|---|---|", *body]
