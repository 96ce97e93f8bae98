"""The served models, by name."""

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
"""Example for models of English words."""
SOUNDS = re.compile("[\u0250-\u02ff]")
"""Letters of the phonetic alphabet; ordinary spelling hardly uses them."""


@dataclass(frozen=True, eq=False)
class Served:
    """A loaded model with its batches, and what the API says about it."""

    name: str
    pipeline: Any
    batchers: Sequence[Batcher]
    """One per thread, a single one for a model that is not compiled; none for a model that does not
    generate text."""
    languages: tuple[str, str] | None
    """(from, into) if the name of an encoder-decoder has a pair of language codes."""
    use: Use
    """The use of the model, by which the page is arranged."""
    example: str
    """A text to try the model with; "" if none is found."""
    about: str = ""
    """One sentence from its model card, or else about its kind of model."""
    texts: tuple[str, ...] = ()
    """Texts to try it with: those of its card, or else the example."""
    created: int = field(default_factory=lambda: int(time.time()))
    """Time of loading as Unix time."""

    def unknown(self, texts: str | Sequence[str]) -> dict[str, Any]:
        """Return {"unknown": the parts of texts never seen in training}, or {} if there are none.

        The parts of one text for a string, and a list of them for several texts.
        """
        alone = isinstance(texts, str)
        found = [self.pipeline.unread(text) for text in ([texts] if alone else texts)]
        return {"unknown": found[0] if alone else found} if any(found) else {}

    def text(self, opening: Opening, answer: Sequence[int]) -> str:
        """Decode the token ids of an answer to `opening`, without the text that it continues."""
        whole = str(self.pipeline.decode(opening.source, answer))
        if whole.startswith(opening.text):
            return whole[len(opening.text) :]
        if opening.again:  # its end is not yet written again
            return ""
        # The first letter belongs to the source's last character (NFD): it is sent by itself.
        return str(self.pipeline.target.decode(list(answer)))


def serve_model(name: str, pipeline: Task, rows: int = ROWS, card: str = "") -> Served:
    """Prepare a model for serving.

    One that generates text is compiled once, if it can be. rows: the most rows of its batches.
    card: the text of its README.md.
    """
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
    """Parse the command line's models, NAME=FOLDER or FOLDER; return folders by name.

    Without NAME it is the name of the folder, or of the run if the folder is called model. Raises
    `UsageError` for two models of one name, and for NAME=FOLDER with an empty part.

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
    """Load all models. Raises `UserError` naming a folder that cannot be read.

    accept_changes: allow models whose files were changed after they were saved.
    """
    return {name: _loaded(name, folder, rows, accept_changes) for name, folder in folders.items()}


def _loaded(name: str, folder: Path, rows: int, accept_changes: bool) -> Served:
    """Load a model and answer a text, so that no request waits for its compilation.

    One answer is searched and one is sampled, which compiles the kernels of the viewer too.
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
    """Return the use of a model; an encoder-decoder with a pair of `languages` translates.

    An encoder-decoder that reads single words pronounces them if it writes phonetic letters; one
    that reads texts chats.
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
    """Choose a short text in a language that the model was probably trained on.

    A model of words gets a word, and one with a pair of languages a sentence of the first, if one
    is stored. For others it is the text with the fewest unknown characters, then with the fewest
    tokens per byte, because a tokenizer makes few tokens of text like its training data. A model
    that labels, and cannot read that text, gets a word. Returns "" where no word is known, and for
    a model without tokenizer and languages.
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
    """Return the longest word of the example sentences that a tokenizer knows, or ""."""
    texts = " ".join(one.sentence for one in LANGUAGES.values()).lower()
    known = [word for word in re.findall(r"\w+", texts) if not tokenizer.unknown([word])]
    return max(known, key=len, default="")
