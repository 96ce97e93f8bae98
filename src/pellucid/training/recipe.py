"""A run's settings, composed of the floors' own; recipes are such settings in TOML files.

A setting that is left out stays at its default. Every setting's meaning is the text under it, which
is also what `pellucid train RECIPE --help` shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from importlib.resources import as_file, files
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pellucid.core.errors import UsageError
from pellucid.core.settings import from_mapping, nearest, read_toml
from pellucid.data.corpora import find_corpus
from pellucid.data.tokenizers import Kind, normaliser
from pellucid.families import FAMILIES, family_of
from pellucid.generation import SearchConfig
from pellucid.models.config import Seq2SeqConfig
from pellucid.training.config import TrainConfig

Metric = Literal["none", "error_rates", "bleu"]
if TYPE_CHECKING:
    ModelConfig = Any
else:
    ModelConfig = reduce(or_, (family.config for family in FAMILIES.values()))


@dataclass(frozen=True)
class DataConfig:
    """What is learnt from: a corpus by name, or files of your own."""

    corpus: str = ""
    """A corpus that Pellucid knows; files given below take its place."""
    split: str = ""
    """Which of the corpus's splits; unset: its first."""
    train: tuple[Path, ...] = ()
    """One file of pairs (.tsv, .csv, .jsonl, also .gz), or two parallel text files. A model of one
    text instead of pairs learns both sides as texts, and may be given one .txt, a text a line."""
    valid: tuple[Path, ...] = ()
    """Held-out pairs to choose the best weights by, likewise; unset: a share of the sources."""
    test: tuple[Path, ...] = ()
    """Pairs that `pellucid evaluate` scores on, likewise; unset: the held-out ones."""
    columns: tuple[str, str] | None = None
    """Names of the source's and the target's column or JSON key; unset: source and target."""
    held_out: float = 0.05
    """Share of the sources put aside by hash when your files have no validation file; 0: none.
    A corpus has its own split."""
    batch_tokens: int = 4096
    """Most source and target tokens in one batch."""
    batch_size: int | None = None
    """Pairs in one batch; set, it takes the place of batch_tokens."""
    bucketed: bool | None = None
    """Put pairs of like length together; unset: with batch_tokens, not with batch_size."""
    max_tokens: int = 128
    """Pairs with a longer side are left out, and counted."""
    sha256: str = ""
    """Checksum of all that is learnt from; a run writes it, and is not resumed on other data."""

    def __post_init__(self) -> None:
        if not self.train and (self.valid or self.test):
            raise UsageError("valid or test files need train files beside them")
        if self.corpus and not self.train:
            find_corpus(self.corpus)
        if not 0 <= self.held_out < 1:
            raise UsageError(f"held_out must be at least 0 and below 1, got {self.held_out}")
        for name in ("batch_tokens", "batch_size", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is cut into tokens. It is learnt from the training side only."""

    kind: Kind = "bpe"
    """bpe: byte-level pieces, which can write any text. char: whole characters."""
    vocab_size: int = 8000
    """Most tokens to learn, the four special ones included; the text may hold fewer."""
    shared: bool = False
    """One vocabulary for both sides; a model of one text instead of pairs always has one."""
    normalise: tuple[str, ...] = ()
    """Done to every text first, in order: nfc, lowercase, punctuation, whitespace."""

    def __post_init__(self) -> None:
        normaliser(self.normalise)  # refuses a name it does not know


@dataclass(frozen=True)
class EvaluationConfig:
    """What is scored on held-out pairs, beside the loss."""

    metric: Metric = "none"
    """error_rates: edits per code point (PER) and share of outputs with any edit (WER). bleu: BLEU
    and chrF by sacreBLEU, for sentences."""
    pairs: int = 500
    """Held-out pairs decoded at each validation during training; the final score takes all."""

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise UsageError(f"pairs must be at least 1, got {self.pairs}")


@dataclass(frozen=True)
class RunConfig:
    """Everything a run depends on."""

    description: str = ""
    """One line about it, for `pellucid recipes` and the model card."""
    seed: int = 0
    """Where the first weights and the order of the data come from."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=Seq2SeqConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        if self.data.max_tokens + 2 > self.model.max_position_embeddings:
            raise UsageError(
                f"model.max_position_embeddings must hold data.max_tokens and begin and end: "
                f"{self.data.max_tokens} + 2 is more than {self.model.max_position_embeddings}"
            )
        family = family_of(self.model)
        if family.validation is None and self.evaluation.metric != "none":
            raise UsageError(
                f'evaluation.metric = "{self.evaluation.metric}" is for encoder-decoders; one '
                "half alone is scored by its loss: leave it out"
            )
        family.check_tokenizers(self.model, self.tokenizer.shared)


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with Pellucid."""
    folder = files("pellucid") / "recipes"
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return sorted(name.removesuffix(".toml") for name in names)


def load_recipe(name: str) -> RunConfig:
    """Return a recipe by name, or the settings in a TOML file or a run folder.

    Raises `UsageError` when there is none (suggesting the nearest), or when it holds a fault.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.toml"
    elif path.suffix != ".toml" and not path.is_file():
        if name not in recipe_names():
            raise UsageError(
                f"no recipe or TOML file {name!r}{nearest(name, recipe_names())}; recipes: "
                f"{', '.join(recipe_names())}"
            )
        with as_file(files("pellucid") / "recipes" / f"{name}.toml") as recipe:
            return from_mapping(RunConfig, read_toml(recipe), recipe.name)
    return from_mapping(RunConfig, read_toml(path), str(path))
