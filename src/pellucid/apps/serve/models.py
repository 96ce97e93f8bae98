"""The models that are served, by name."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pellucid.apps.serve.batcher import Batcher, Job, batchers_for
from pellucid.apps.serve.languages import LANGUAGES, language_pair
from pellucid.apps.serve.limits import ROWS
from pellucid.core.errors import UsageError, UserError
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.system.files import check_file
from pellucid.tasks import Task
from pellucid.tasks.folder import CARD, find_model, load_model
from pellucid.tasks.generation import Opening
from pellucid.tasks.masked_lm import MASK
from pellucid.training.card import about_and_examples

Use = Literal["translate", "chat", "pronounce", "words", "continue", "fill", "label"]

WORD = "transparent"
SOUNDS = re.compile("[\u0250-\u02ff]")
"""Letters of the phonetic alphabet that no spelling has."""


@dataclass(frozen=True, eq=False)
class Served:
    """A loaded model and what answers with it."""

    name: str
    pipeline: Any
    batchers: Sequence[Batcher]
    """A batch for each thread; none of a model that does not generate."""
    languages: tuple[str, str] | None
    """From which language it translates into which, if its name says so."""
    use: Use
    """The use of the model."""
    example: str
    """A text that it reads well; "": it reads no texts."""
    about: str = ""
    """One sentence on it, of its card."""
    texts: tuple[str, ...] = ()
    """Texts to try it with: its card's, else its example."""
    created: int = field(default_factory=lambda: int(time.time()))
    """When it was loaded, in Unix time."""

    def unknown(self, texts: str | Sequence[str]) -> dict[str, Any]:
        """Return a response's field for what the model never saw of a text, or of each; or none."""
        alone = isinstance(texts, str)
        found = [self.pipeline.unread(text) for text in ([texts] if alone else texts)]
        return {"unknown": found[0] if alone else found} if any(found) else {}

    def text(self, opening: Opening, answer: Sequence[int]) -> str:
        """Return the text of an answer alone, without what it continues."""
        whole = str(self.pipeline.decode(opening.source, answer))
        if whole.startswith(opening.text):
            return whole[len(opening.text) :]
        if opening.again:  # its end is not yet written again
            return ""
        # The first letter belongs to the source's last character (NFD): it is sent by itself.
        return str(self.pipeline.target.decode(list(answer)))


def serve_model(name: str, pipeline: Task, rows: int = ROWS, card: str = "") -> Served:
    """Prepare a model for serving: compile it once for all answers. `card`: its README.md."""
    trained: Any = pipeline
    batchers: Sequence[Batcher] = ()
    if trained.generates:
        batchers = batchers_for(trained.decoder(), rows, trained.kind == "continue")
    pair = language_pair(name) if trained.kind == "answer" else None
    use = use_of(trained, pair)
    example = example_for(trained, use, pair)
    about, texts = about_and_examples(card)
    texts = texts or ([example] if example else [])
    return Served(name, trained, batchers, pair, use, example, about or trained.about, tuple(texts))


def named_folders(arguments: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each model by its name: NAME=FOLDER, or the name of the folder.

    Raises `UsageError` for two of one name.

    >>> named_folders(["runs/chat", "de-en=runs/small/model"])
    {'chat': PosixPath('runs/chat'), 'de-en': PosixPath('runs/small/model')}
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, equals, rest = argument.partition("=")
        folder = Path(rest if equals else argument)
        if not equals:
            whole = folder.resolve()
            name = whole.parent.name if whole.name == "model" else whole.name
        if name in folders:
            raise UsageError(
                f"two models are named {name}: {folders[name]} and {folder}; name one of them: "
                f"OTHER={folder}"
            )
        if not name or (equals and not rest):
            raise UsageError(f"expected FOLDER or NAME=FOLDER, got {argument!r}")
        folders[name] = folder
    return folders


def load_models(
    folders: dict[str, Path], rows: int = ROWS, accept_changes: bool = False
) -> dict[str, Served]:
    """Load every model. Raises `UserError` naming the folder that cannot be read.

    accept_changes: take models whose files were changed after they were saved.
    """
    return {name: _loaded(name, folder, rows, accept_changes) for name, folder in folders.items()}


def _loaded(name: str, folder: Path, rows: int, accept_changes: bool) -> Served:
    """Load a model and answer a text with it, so that no request waits for its compilation.

    It searches for an answer, and draws one, whose kernels are those of the viewer, too.
    """
    trained = load_model(folder, accept_changes)
    card = find_model(folder) / CARD
    text = ""
    if card.is_file():
        check_file(card, 1 << 20)
        text = card.read_text(encoding="utf-8", errors="replace")
    served = serve_model(name, trained, rows, text)
    if served.example and not served.batchers:
        served.pipeline.guesses(served.example)
    elif served.example:
        batcher = served.batchers[0]
        opening = served.pipeline.prompt_ids(served.pipeline.source.encode(served.example))
        for config in (SearchConfig(max_length=2), SampleConfig(max_length=2)):
            batcher.add(Job(opening, config))
        while not batcher.idle:
            batcher.round()
    return served


# what a model is for ------------------------------------------------------------------------------


def use_of(pipeline: Any, languages: tuple[str, str] | None) -> Use:
    """Return what a model is for: with a pair of languages in its name it translates.

    One that reads words without spaces pronounces them if it writes phonetic letters.
    """
    task: Task = pipeline
    if task.kind != "answer":
        return task.kind
    if languages is not None:
        return "translate"
    if not pipeline.reads_words:
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
        text = min(filter(None, texts), key=cost)
    except UserError:
        return ""
    fits = 0 < len(tokenizer.encode(text)) <= pipeline.max_source_length
    return text if fits or use != "label" else _known_word(tokenizer)


def _known_word(tokenizer: Any) -> str:
    """Return the longest word of the languages' sentences that a tokenizer knows; else ""."""
    texts = " ".join(one.sentence for one in LANGUAGES.values()).lower()
    known = [word for word in re.findall(r"\w+", texts) if not tokenizer.unknown([word])]
    return max(known, key=len, default="")
