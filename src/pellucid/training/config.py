"""The settings of a run; a recipe is such settings in a TOML file.

A setting that is left out has its default. The text under a setting is its meaning, and its help in
`pellucid train RECIPE --help`. What a part has settings of its own for keeps them in its own file:
the model (`models.config`), the search (`generation`), optimizers and schedules.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
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
from pellucid.evaluation.metrics import HIGHER_IS_BETTER, SCORES
from pellucid.families import FAMILIES, family_of
from pellucid.generation import SearchConfig
from pellucid.models.config import Seq2SeqConfig
from pellucid.training.optimizers import OptimizerConfig
from pellucid.training.schedules import ScheduleConfig

Metric = Literal["none", "error_rates", "bleu"]
if TYPE_CHECKING:
    ModelConfig = Any
else:
    ModelConfig = reduce(or_, (family.config for family in FAMILIES.values()))

_log = logging.getLogger(__name__)


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
class TrainingConfig:
    """How a model is trained. Of steps, epochs and minutes give at least one; the first ends it."""

    steps: int | None = None
    """Stop after this many steps."""
    epochs: int | None = None
    """Stop after this many passes over the data."""
    minutes: float | None = None
    """Stop after this much time, validation included. Such a run ends where the clock says, and a
    decaying schedule follows the clock too: it can be resumed, but not repeated bit for bit."""
    seed: int = 0
    """Seed of dropout."""
    accumulate: int = 1
    """Work each batch through in this many parts: less memory, the same result to rounding."""
    loss_normalisation: Literal["token", "sentence", "sum"] = "token"
    """What a step's summed loss is divided by: its target tokens, its sentences, or nothing."""
    label_smoothing: float = 0.0
    """Share of the target's probability that is spread over the whole vocabulary."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    log_every: int = 50
    """Steps between records of the training loss."""
    validate_every: int = 1
    """How often the held-out set is scored and a checkpoint is written."""
    validate_unit: Literal["epochs", "steps"] = "epochs"
    """What validate_every counts."""
    checkpoint_every: int | None = None
    """Steps between further checkpoints; unset for those at validations only."""
    monitor: str = "loss"
    """The held-out score that decides what is best: loss, or a metric's name."""
    higher_is_better: bool = False
    """Whether a higher score is a better one, where the score's name does not say it."""
    patience: int | None = None
    """Stop after this many validations in a row without a new best."""
    keep: int = 3
    """Checkpoints kept, beside the best."""
    use: Literal["best", "last", "average"] = "best"
    """Which weights the trained model gets. Without a held-out set, best means last."""
    average: int = 5
    """How many of the last checkpoints `use = "average"` takes the mean of."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        for name in ("steps", "epochs", "minutes", "checkpoint_every", "patience"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0 or unset, got {value}")
        for name in ("accumulate", "log_every", "validate_every", "keep", "average"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        for name, known in (
            ("loss_normalisation", ("token", "sentence", "sum")),
            ("validate_unit", ("epochs", "steps")),
            ("use", ("best", "last", "average")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}"
                )

    def check(self, offered: Collection[str] | None) -> None:
        """Raise `UsageError` when no end is named, or the best is judged by what cannot judge it.

        offered: the names of the held-out scores that there will be; None: nothing is held out.
        """
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise UsageError("say when training ends: set steps, epochs or minutes")
        if offered is not None and self.monitor not in offered:
            giving = [metric for metric, scores in SCORES.items() if self.monitor in scores]
            raise UsageError(
                f"monitor = {self.monitor!r} is not a held-out score; there is "
                f"{', '.join(offered) or 'none'}"
                + "".join(f" (evaluation.metric = {metric!r} gives it)" for metric in giving)
            )
        if self.higher_is_better and not self.higher_wins:
            raise UsageError(
                f"higher_is_better = true contradicts monitor = {self.monitor!r}, of which the "
                "lower is the better; leave it out"
            )

    @property
    def higher_wins(self) -> bool:
        """Whether the best score is the highest: the monitor's name says it, or else a setting."""
        return HIGHER_IS_BETTER.get(self.monitor, self.higher_is_better)

    @property
    def checkpoints_kept(self) -> int:
        """How many of the last checkpoints stay on the disk."""
        return max(self.keep, self.average) if self.use == "average" else self.keep


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
    training: TrainingConfig = field(default_factory=TrainingConfig)
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


RENAMED = {"chatbot-ko-seed": "chatbot-ko-article"}
"""Recipes that had another name."""


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
        if name in RENAMED:
            _log.warning("the recipe %s is now called %s", name, RENAMED[name])
            name = RENAMED[name]
        if name not in recipe_names():
            raise UsageError(
                f"no recipe or TOML file {name!r}{nearest(name, recipe_names())}; recipes: "
                f"{', '.join(recipe_names())}"
            )
        with as_file(files("pellucid") / "recipes" / f"{name}.toml") as recipe:
            return from_mapping(RunConfig, read_toml(recipe), recipe.name)
    return from_mapping(RunConfig, read_toml(path), str(path))
