"""The settings of a run; a recipe is a TOML file of settings.

A setting that is left out has its default. The docstring of a setting is also its help in `pellucid
train RECIPE --help`. The model's settings are in `models.config`, those of search in
`models.decoding`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pellucid.core.errors import UsageError
from pellucid.core.settings import Name, check_ranges, from_mapping, nearest, to_mapping
from pellucid.data.corpora import find_corpus
from pellucid.data.pairs import entry
from pellucid.data.quality import FAULTS, LATER
from pellucid.data.tokenizers import KINDS, normaliser
from pellucid.generation import SearchConfig
from pellucid.models.config import Seq2SeqConfig, StackConfig
from pellucid.optim.config import ScheduleConfig, StepConfig
from pellucid.system.files import read_toml
from pellucid.system.language import plural
from pellucid.tasks import task_of
from pellucid.tasks.folder import naming_imports
from pellucid.tasks.metrics import METRICS, check_metric, higher_is_better

# The choices are the registries' own.
if TYPE_CHECKING:
    ModelConfig = Any
    MetricName = str
    TokenizerName = str
    Fault = str
else:
    ModelConfig = StackConfig  # each kind of model has a class under it
    TokenizerName = Literal[tuple(KINDS)]
    Fault = Literal[(*FAULTS, *LATER)]

    class MetricName(Name):
        registry, others = METRICS, ("none",)


@dataclass(frozen=True)
class DataConfig:
    """The data: a corpus by name, or files of your own."""

    corpus: str = ""
    """A corpus by its name in `pellucid recipes`; files given below replace it."""
    split: str = ""
    """Which of the corpus's splits; unset: its first."""
    train: tuple[Path, ...] = ()
    """One file of pairs (.tsv, .csv, .jsonl, also .gz), or two parallel text files. A model of one
    text learns both sides as texts; it also takes one .txt, a text a line."""
    valid: tuple[Path, ...] = ()
    """Validation pairs, which choose the best weights, likewise; unset: a share of the sources."""
    test: tuple[Path, ...] = ()
    """Test pairs, which `pellucid evaluate` scores on, likewise; unset: the validation pairs."""
    more: tuple[Path, ...] = ()
    """Files of further training pairs, each of pairs, such as a model's translations of the
    sources. They are no part of the split; those whose source is held out are left out."""
    columns: tuple[str, ...] | None = None
    """Names of the source's and the target's column or JSON key, or numbers of columns, from 1,
    where a file does not name them; unset: source and target. With three the source is a pair of
    texts, or a text and its features, which a model reads with a tab between them."""
    leave_out: tuple[Fault, ...] = ()
    """Pairs of your files that are left out, and counted: copies (the target is the source), markup
    (tags, entities), placeholders (others on one side than on the other), duplicates, lengths (far
    from the usual). `pellucid data FILE` counts them. Pairs with an empty side always are."""
    balance: float = 0.0
    """How far training texts with rare labels are repeated: 0 not at all, 1 until every label comes
    as often as the most frequent, 0.5 half of the way (the square root of that)."""
    held_out: float = 0.05
    """Share of the sources held out by hash when your files have no validation file; 0: none.
    A corpus has its own split."""
    batch_tokens: int = 4096
    """Most source and target tokens in one batch."""
    batch_size: int | None = None
    """Pairs in one batch; set, it replaces batch_tokens."""
    bucketed: bool | None = None
    """Batch pairs of similar length; unset: with batch_tokens, not with batch_size."""
    stream: bool = False
    """Read a .txt as one text, its line ends kept, not a text a line; its last part is held out."""
    max_tokens: int = 128
    """Pairs with a longer side are left out, and counted; a decoder alone reads a longer text in
    blocks of so many."""
    sha256: str = ""
    """Checksum of the training data; a run writes it, and cannot be resumed on other data."""

    def __post_init__(self) -> None:
        if not self.train and (self.valid or self.test):
            raise UsageError("valid or test files need train files too")
        if self.corpus and not self.train:
            find_corpus(self.corpus)
        if self.columns is not None and not 2 <= len({*self.columns}) == len(self.columns) <= 3:
            raise UsageError(
                f"`data.columns` takes 2 or 3 different columns, target last; got {self.columns}"
            )
        above = dict.fromkeys(("batch_tokens", "batch_size", "max_tokens"), "[1, inf]")
        check_ranges(self, held_out="[0, 1)", balance="[0, 1]", **above)


@dataclass(frozen=True)
class TokenizerConfig:
    """How text is tokenized. The tokenizer is learnt from the training data only."""

    kind: TokenizerName = "bpe"
    """bpe: byte-level pieces, which can write any text. char: whole characters. features:
    characters, and after a tab one token for each feature, as in V;PST. word: whole words, or other
    symbols with spaces between them, such as phones. label: a whole text is one token."""
    target_kind: TokenizerName | None = None
    """The kind of the target's tokenizer, where it is another; char where the source has
    features."""
    vocab_size: int = 8000
    """Largest vocabulary, the four special tokens included; the text may give fewer."""
    shared: bool = False
    """One vocabulary for both sides; a model of one text always has one."""
    normalise: tuple[str, ...] = ()
    """Applied to every text first, in order: nfc, nfd (Hangul into letters, accents off their
    letters; answers are composed again), lowercase, punctuation, whitespace."""
    typed: bool = True
    """Read a character that the training sources never have as the one they have that looks the
    same: of another case, width, composition or kind of quote; leave out invisible ones, and white
    space round a text. It is saved with the model."""
    dropout: float = 0.0
    """BPE-dropout: share of the merges left out while training, drawn anew for every batch; 0.1 is
    usual. Batches then have more tokens than batch_tokens says."""

    @property
    def same(self) -> Callable[[str], str]:
        """Function that maps texts that are equal after normalising, or look alike, to one text.

        See `data.pairs.entry`.
        """
        normal = normaliser([*self.normalise, *["whitespace"] * (self.kind == "word")])
        return lambda text: entry(normal(text))

    @property
    def group(self) -> Callable[[str], str]:
        """Function that maps sources that must be on the same side of a split to one text.

        These are the texts that `same` maps to one; with features all forms of one word.
        """
        same = self.same
        return same if self.kind != "features" else lambda text: same(text.rpartition("\t")[0])

    def __post_init__(self) -> None:
        normaliser(self.normalise)  # refuses a name it does not know
        check_ranges(self, vocab_size="[1, 1e7]", dropout="[0, 1]")
        if self.target_kind == "features":
            raise UsageError("features are the source's: set another target_kind, such as char")
        if self.kind == "features" and self.target_kind is None:
            object.__setattr__(self, "target_kind", "char")
        if self.target_kind == self.kind:
            object.__setattr__(self, "target_kind", None)
        if self.shared and self.target_kind is not None:
            raise UsageError(
                f'target_kind = "{self.target_kind}" needs a vocabulary for each side: leave out '
                "shared = true"
            )


@dataclass(frozen=True)
class StartConfig:
    """The model that a run begins with, in place of a new one."""

    folder: Path
    """Where it was when the run began, which keeps a copy."""
    sha256: str = ""
    """Checksum of its files; a run writes it, and cannot be resumed with another model."""
    model_type: str = ""
    """Hugging Face's name of its architecture; empty for a model folder of Pellucid's."""


@dataclass(frozen=True)
class EvaluationConfig:
    """Scores on held-out pairs besides the loss."""

    metric: MetricName = "none"
    """error_rates: edits per phoneme (PER), which is a word where the target's tokenizer is one of
    words, else a character, and share of outputs with any edit (WER). letter_error_rates: the same
    of answers in letters (CER, WER). bleu: BLEU and chrF by sacreBLEU, for sentences, its tokenizer
    that of the references' script; bleu-13a, bleu-intl, bleu-zh and bleu-char name one."""
    pairs: int = 500
    """Held-out pairs decoded at each validation during training; the final score takes all, and so
    does every validation of a model of labels."""

    def __post_init__(self) -> None:
        check_ranges(self, pairs="[1, inf]")


@dataclass(frozen=True)
class TrainingConfig(StepConfig):
    """How a model is trained. Of steps, epochs and minutes give at least one; the first ends it."""

    steps: int | None = None
    """Stop after this many steps."""
    epochs: int | None = None
    """Stop after this many passes over the data."""
    minutes: float | None = None
    """Stop after this much time, validation included. The clock ends such a run and moves its
    schedule: it can be resumed, but not repeated bit for bit."""
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    log_every: int = 50
    """Steps between records of the training loss."""
    validate_every: int = 1
    """How often there is a validation, with a checkpoint."""
    validate_unit: Literal["epochs", "steps"] = "epochs"
    """The unit of validate_every."""
    checkpoint_every: int | None = None
    """Steps between further checkpoints; unset: only those at validations."""
    monitor: str = "loss"
    """The held-out score that decides what is best: loss, or one of the metric's, such as per, cer,
    wer,
    bleu or f1."""
    higher_is_better: bool = False
    """Whether a higher score is better, for a score that Pellucid does not know."""
    patience: int | None = None
    """Stop after this many validations in a row without a new best."""
    keep: int = 3
    """Checkpoints kept, besides the best; with `use = "average"` at least those of the mean."""
    use: Literal["best", "last", "average", "ema"] = "best"
    """Which weights the trained model gets. Without validation pairs, best means last. ema: a
    moving average, which the validations then score; the model gets that of the best one."""
    ema: float = 0.999
    """How slowly the moving average forgets; it begins faster. Only `use = "ema"` keeps one."""
    average: int = 5
    """How many of the last checkpoints `use = "average"` takes the mean of."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        super().__post_init__()
        ends = ("steps", "epochs", "minutes", "checkpoint_every", "patience")
        counts = ("log_every", "validate_every", "keep", "average")
        above = dict.fromkeys(ends, "(0, inf]") | dict.fromkeys(counts, "[1, inf]")
        check_ranges(self, **above, ema="[0, 1)")

    def check(self, offered: Collection[str] | None) -> None:
        """Raise `UsageError` if training has no end, or settings contradict the scores offered.

        That is a score to monitor that is missing, `patience` without validation, or
        `higher_is_better` for a score that is better lower. offered: names of the validation
        scores; None: there is no validation.
        """
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise UsageError("training has no end: set steps, epochs or minutes")
        idle = (("patience", None, self.patience), ("monitor", "loss", self.monitor))
        for name, default, value in idle if offered is None else ():
            if value != default:
                raise UsageError(
                    f"training.{name} = {value!r} needs validation pairs: give data.valid or "
                    f"data.held_out, or leave {name} at {default!r}"
                )
        if offered is not None and self.monitor not in offered:
            giving = [name for name, metric in METRICS.items() if self.monitor in metric.scores]
            raise UsageError(
                f"monitor = {self.monitor!r} is not a held-out score; there is "
                f"{', '.join(offered) or 'none'}"
                + "".join(f" (evaluation.metric = {metric!r} gives it)" for metric in giving[:1])
            )
        if self.higher_is_better and not self.higher_wins:
            raise UsageError(
                f"higher_is_better = true contradicts monitor = {self.monitor!r}, for which "
                "lower is better; leave it out"
            )

    def _budget(self, step: int, epochs: float, seconds: float) -> list[tuple[float, float]]:
        """Return (limit, used so far) for each limit that is set."""
        minutes = None if self.minutes is None else 60 * self.minutes
        limits = ((self.steps, step), (self.epochs, epochs), (minutes, seconds))
        return [(limit, used) for limit, used in limits if limit is not None]

    def share_used(self, *, step: int, epochs: float, seconds: float) -> float:
        """Return the used share of the training budget, 0 to 1; at least one limit must be set.

        Of several limits the one that is nearest to its end counts. `epochs` is a number of passes
        with its fraction, `seconds` the training time so far.

        >>> TrainingConfig(steps=100, epochs=4).share_used(step=10, epochs=2.0, seconds=0.0)
        0.5
        """
        return min(max(used / limit for limit, used in self._budget(step, epochs, seconds)), 1.0)

    def total_steps(self, *, step: int, epochs: float, seconds: float) -> float:
        """Return the total number of steps, as set or projected from the share used.

        `epochs`, above 0, and `seconds` are those after `step` steps. A projection from seconds
        depends on the clock, so it differs between repetitions.

        >>> TrainingConfig(epochs=4).total_steps(step=10, epochs=0.5, seconds=0.0)
        80.0
        """
        budget = self._budget(step, epochs, max(seconds, 1e-9))
        return min(step * limit / used for limit, used in budget)

    def reason_to_stop(self, *, step: int, epochs: float, seconds: float) -> str | None:
        """Return the limit that is reached, in words, or None; only complete epochs count.

        A resumed run may be past a limit that was lowered.

        >>> TrainingConfig(steps=100).reason_to_stop(step=100, epochs=0.5, seconds=0.0)
        '100 steps'
        >>> TrainingConfig(steps=100).reason_to_stop(step=101, epochs=0.5, seconds=0.0)
        'already past 100 steps'
        """
        for limit, at, unit in ((self.steps, step, "step"), (self.epochs, int(epochs), "epoch")):
            if limit is not None and at >= limit:
                return f"{'already past ' if at > limit else ''}{limit} {plural(limit, unit)}"
        if self.minutes is not None and seconds >= 60 * self.minutes:
            return f"{self.minutes:g} {plural(self.minutes, 'minute')}"
        return None

    @property
    def higher_wins(self) -> bool:
        """Whether a higher score is better, by the score's name or else by the setting."""
        return higher_is_better().get(self.monitor, self.higher_is_better)

    @property
    def checkpoints_kept(self) -> int:
        """Number of latest checkpoints to keep: `keep`, and at least `average`, if used."""
        return max(self.keep, self.average) if self.use == "average" else self.keep


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run, except device and precision."""

    description: str = ""
    """One line for `pellucid recipes` and the model card."""
    seed: int = 0
    """Random seed of the initial weights, of the order of the data and of BPE-dropout."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=Seq2SeqConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    start: StartConfig | None = None
    """The model to begin with; unset: a new one."""

    def __post_init__(self) -> None:
        check_ranges(self, seed="[0, inf]")
        if self.data.max_tokens + 2 > self.model.max_position_embeddings:
            raise UsageError(
                f"model.max_position_embeddings must hold data.max_tokens, begin and end: "
                f"{self.data.max_tokens} + 2 is more than {self.model.max_position_embeddings}"
            )
        task = task_of(self.model)
        if self.data.balance and getattr(self.model, "labels", "token") != "text":
            raise UsageError("data.balance is for a model that gives each text a label")
        check_metric(self.evaluation.metric, task.kind)
        if self.tokenizer.target_kind is not None and len(task.vocabularies) == 1:
            raise UsageError(
                "a model of one text has one tokenizer: leave tokenizer.target_kind out"
            )
        model, shared = self.model, self.tokenizer.shared
        if isinstance(model, Seq2SeqConfig) and model.ties_source and not shared:
            raise UsageError(
                f'model.tie_embeddings = "{model.tie_embeddings}" needs tokenizer.shared = true'
            )
        kept = self.tokenizer.kind != "word" and "whitespace" not in self.tokenizer.normalise
        if len(self.data.columns or ()) > 2 and not kept:
            raise UsageError(
                "a pair of texts is read with a tab between them, which the tokenizer word and the "
                "normaliser whitespace do not keep: take the tokenizer char or bpe"
            )

    def as_mapping(self) -> dict[str, Any]:
        """Return the settings as nested tables, as the run folder stores them.

        For a run that begins with a model of Hugging Face's the table `tokenizer` has only
        `shared`.
        """
        settings = to_mapping(self)
        if self.start is not None and self.start.model_type:
            settings["tokenizer"] = {"shared": True}  # another program's: no more is known
        return settings


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with Pellucid."""
    folder = files("pellucid") / "recipes"
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return sorted(name.removesuffix(".toml") for name in names)


def load_recipe(name: str) -> RunConfig:
    """Load the settings of a recipe by name, of a TOML file, or of a run folder.

    Raises `UsageError` if there is none (the message suggests the nearest name), or for an error in
    it.
    """
    values, source, _ = recipe_values(name)
    with naming_imports(Path(name)):
        return from_mapping(RunConfig, values, source)


def recipe_values(name: str) -> tuple[dict[str, Any], str, bool]:
    """Read a recipe by name, a TOML file, or the config.toml of a folder.

    Return its values, its name in errors, and whether it is the user's and not Pellucid's. Raises
    `UsageError` if there is none, or it is not valid TOML.
    """
    path = Path(name)
    if path.is_dir():
        path = path / "config.toml"
    elif path.suffix != ".toml":
        if name not in recipe_names():
            raise UsageError(
                f"no recipe or TOML file {name!r}{nearest(name, recipe_names())}; recipes: "
                f"{', '.join(recipe_names())}; data of your own are given as `data.train`"
            )
        with as_file(files("pellucid") / "recipes" / f"{name}.toml") as recipe:
            return read_toml(recipe), recipe.name, False
    return read_toml(path), str(path), True
