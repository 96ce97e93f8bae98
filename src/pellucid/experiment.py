"""A run from its settings: data, tokenizers, model, training, and the model folder at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.bleu import Figure, bleu, check_installed
from pellucid.config import DataConfig, RunConfig, TokenizerConfig
from pellucid.errors import UsageError, UserError
from pellucid.model_folder import folder_size, save_model
from pellucid.models.seq2seq import Seq2Seq
from pellucid.scores import ErrorRates, error_rates
from pellucid.settings import to_mapping
from pellucid.text.batches import Batches, Examples, encode_pairs, held_out_batches
from pellucid.text.corpora import find_corpus, load_corpus
from pellucid.text.files import read_split
from pellucid.text.pairs import Pair, Pairs
from pellucid.text.tokenizer import Tokenizer, train_tokenizer
from pellucid.trained import Trained
from pellucid.training.card import model_card
from pellucid.training.events import Listener
from pellucid.training.run import RunFolder
from pellucid.training.step import held_out_loss
from pellucid.training.storage import Store
from pellucid.training.trainer import Trainer

Say = Callable[[str], None]


@dataclass(frozen=True)
class Scores:
    """What a model is worth on pairs that it was not trained on."""

    loss: float
    """Nats per target token."""
    rates: ErrorRates | None
    """If the settings ask for them."""
    figures: tuple[Figure, ...]
    """BLEU and chrF, if the settings ask for them."""
    pairs: int

    def as_json(self) -> dict[str, Any]:
        """Return the scores by name."""
        rates = self.rates._asdict() if self.rates else {}
        figures = {f.name.lower().replace(" ", "_"): f._asdict() for f in self.figures}
        return {
            "pairs": self.pairs,
            "loss": self.loss,
            "perplexity": math.exp(self.loss),
            **rates,
            **figures,
        }

    def written(self) -> dict[str, str]:
        """Return the scores by name, written out."""
        rows = {
            "pairs": f"{self.pairs:,}",
            "loss": f"{self.loss:.4f} nats per target token (perplexity {math.exp(self.loss):.3f})",
        }
        if self.rates:
            for name, value, (low, high) in (
                ("PER", self.rates.per, self.rates.per_interval),
                ("WER", self.rates.wer, self.rates.wer_interval),
            ):
                rows[name] = f"{value:.2%} (95 %: {low:.2%} to {high:.2%})"
        return {**rows, **{figure.name: figure.written() for figure in self.figures}}


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    trained: Trained
    pairs: Pairs
    scores: Scores | None
    """On all the pairs put aside; None when there are none, or when training was interrupted."""
    interrupted: str | None
    """The signal that ended training, if one did: then there is no model folder yet."""


def read_data(config: DataConfig) -> Pairs:
    """Read the pairs that the settings name. Raises `UserError` naming file and line."""
    if config.train:
        return read_split(
            config.train,
            config.valid,
            config.test,
            held_out=config.held_out,
            columns=config.columns,
        )
    if config.corpus:
        return load_corpus(config.corpus, config.split or None)
    raise UsageError("say what to train on: set data.corpus, or give files as data.train")


def make_tokenizers(config: TokenizerConfig, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """Learn the source's and the target's tokenizer from the training side; they may be one."""
    sources = [pair.source for pair in pairs.train]
    targets = [text for pair in pairs.train for text in pair.targets]
    sides = [sources + targets] if config.shared else [sources, targets]
    made = [
        train_tokenizer(texts, config.kind, config.vocab_size, config.normalise) for texts in sides
    ]
    return made[0], made[-1]


def score(
    trained: Trained, pairs: Sequence[Pair], config: RunConfig, first_target_only: bool = True
) -> Scores:
    """Score a model on pairs. Error rates count the nearest of a pair's targets."""
    examples = encode_pairs(
        pairs,
        trained.source,
        trained.target,
        max_tokens=config.data.max_tokens,
        first_target_only=first_target_only,
    )
    loss = held_out_loss(trained.model, held_out_batches(examples, config.data.batch_tokens))
    trained.model.eval()
    metric = config.evaluation.metric
    answers = trained.best([pair.source for pair in pairs]) if metric != "none" else []
    references = [pair.targets for pair in pairs]
    rates = error_rates(answers, references) if metric == "error_rates" else None
    figures = bleu(answers, references) if metric == "bleu" else ()
    return Scores(loss, rates, figures, len(pairs))


def train_run(
    config: RunConfig,
    folder: Path,
    *,
    resume: bool = False,
    accept_changes: bool = False,
    store: Store = "float32",
    listeners: Iterable[Listener] = (),
    say: Say = lambda line: None,
) -> Outcome:
    """Train as `config` says, in a run folder, and write the model folder `model` inside it.

    `say` is told, a line at a time, what was read and how the model scores in the end.

    Raises `UserError` for anything the user can mend; what was saved before is whole.
    """
    if config.evaluation.metric == "bleu":
        check_installed()  # now, rather than after the training
    pairs = read_data(config.data)
    source, target = make_tokenizers(config.tokenizer, pairs)
    examples = _encode(pairs.train, source, target, config, pairs.first_target_only)
    config = _resolve(config, source, target, examples, accept_changes)
    model = Seq2Seq(config.model, seed=config.seed)
    trained = Trained(model, source, target, config.search)
    say(_account(pairs, examples, config))
    held_out = _encode(pairs.valid, source, target, config, True) if pairs.valid else None
    with RunFolder(folder, to_mapping(config), resume=resume, accept_changes=accept_changes) as run:
        trainer = Trainer(
            model,
            _batches(examples, config),
            config.training,
            validation=held_out_batches(held_out, config.data.batch_tokens) if held_out else (),
            metric=_metric(trained, pairs.valid, config),
            run=run,
            listeners=listeners,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # the trainer says it, with the step
            result = trainer.fit()
        if result.interrupted is not None:
            return Outcome(trained, pairs, None, result.interrupted)
        judged = pairs.test or pairs.valid
        scores = score(trained, judged, config) if judged else None
        if scores is not None:
            say("put aside: " + ", ".join(f"{k} {v}" for k, v in scores.written().items()))
        save_model(folder / "model", trained, card(folder, config, scores), store)
        say(f"model folder: {folder_size(folder / 'model')}, weights stored as {store}")
    return Outcome(trained, pairs, scores, None)


def _encode(
    pairs: Sequence[Pair],
    source: Tokenizer,
    target: Tokenizer,
    config: RunConfig,
    first_target_only: bool,
) -> Examples:
    return encode_pairs(
        pairs,
        source,
        target,
        max_tokens=config.data.max_tokens,
        first_target_only=first_target_only,
    )


def _resolve(
    config: RunConfig,
    source: Tokenizer,
    target: Tokenizer,
    examples: Examples,
    accept_changes: bool,
) -> RunConfig:
    """Fill in what only the data can say."""
    if config.data.sha256 not in ("", examples.digest) and not accept_changes:
        raise UserError(
            "the training data is not what this run was started with (data.sha256 differs); put "
            "it back, or start a new run in another folder"
        )
    model = replace(
        config.model,
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
    )
    return replace(config, model=model, data=replace(config.data, sha256=examples.digest))


def _batches(examples: Examples, config: RunConfig) -> Batches:
    size = config.data.batch_size
    return Batches(
        examples,
        seed=config.seed,
        batch_tokens=config.data.batch_tokens if size is None else None,
        batch_size=size,
        bucketed=config.data.bucketed,
    )


def _metric(
    trained: Trained, pairs: Sequence[Pair], config: RunConfig
) -> Callable[[Any], Mapping[str, float]] | None:
    """Return what scores some held-out pairs at each validation."""
    if config.evaluation.metric == "none" or not pairs:
        return None
    step = max(1, len(pairs) // config.evaluation.pairs)
    some = pairs[::step][: config.evaluation.pairs]

    def metric(_: Any) -> Mapping[str, float]:
        answers = trained.best([pair.source for pair in some])
        references = [pair.targets for pair in some]
        if config.evaluation.metric == "bleu":
            cased, lower, chrf = bleu(answers, references, intervals=False)
            return {"bleu": cased.value, "bleu_lower": lower.value, "chrf": chrf.value}
        rates = error_rates(answers, references)
        return {"per": rates.per, "wer": rates.wer}

    return metric


def _account(pairs: Pairs, examples: Examples, config: RunConfig) -> str:
    aside = [
        f"{len(side):,} for {use}"
        for side, use in ((pairs.valid, "validation"), (pairs.test, "the final score"))
        if side
    ]
    return (
        f"{len(examples):,} pairs to learn from"
        + (f", put aside {' and '.join(aside)}" if aside else "")
        + f"; {config.model.source_vocab_size:,} source and "
        f"{config.model.target_vocab_size:,} target tokens in the vocabulary"
    )


def card(folder: Path, config: RunConfig, scores: Scores | None) -> str:
    """Return the model card of a run."""
    if config.data.train:
        data = [f"Pairs of the user's own: {', '.join(p.name for p in config.data.train)}."]
    else:
        corpus = find_corpus(config.data.corpus)
        data = [f"{corpus.about}. Origin: {corpus.origin}. Licence: {corpus.licence}."]
    return model_card(
        folder.name,
        about=f"An encoder-decoder Transformer. {config.description}".strip(),
        data=data,
        scores=scores.written() if scores else {},
        settings=to_mapping(config),
        usage=[f"pellucid generate {folder}", f"pellucid evaluate {folder}"],
        limits="It knows its training data and what is like it; nothing was done to make its "
        "answers true, safe or fair.",
    )
