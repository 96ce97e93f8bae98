"""A run from its settings: data, tokenizers, model, training, and the model folder at the end."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import to_mapping
from pellucid.data.batches import Batches, Examples, held_out_batches
from pellucid.data.corpora import find_corpus, load_corpus
from pellucid.data.files import read_split
from pellucid.data.pairs import Pair, Pairs, report_shared
from pellucid.data.texts import as_texts, is_text_file, read_texts
from pellucid.data.tokenizers import Tokenizer, normaliser, train_tokenizer
from pellucid.evaluation.bleu import check_installed
from pellucid.evaluation.evaluate import Scores, encode, score, validation_metric
from pellucid.models import CausalLM, CausalLMConfig, MaskedLM, MaskedLMConfig, Seq2Seq
from pellucid.models.config import LanguageConfig, Seq2SeqConfig
from pellucid.models.quantize import Store
from pellucid.pipelines import CausalLMPipeline, MaskedLMPipeline, Pipeline, Seq2SeqPipeline
from pellucid.pipelines.folder import (
    TARGET_TOKENIZER,
    TOKENIZER,
    folder_size,
    save_model,
    token_fault,
    tokenizer_files,
)
from pellucid.training.card import model_card, say_stored
from pellucid.training.config import SCORES
from pellucid.training.events import Listener
from pellucid.training.recipe import DataConfig, RunConfig, TokenizerConfig
from pellucid.training.run import RunFolder, check_resumed, checkpoint_settings
from pellucid.training.trainer import Metric, Trainer

Say = Callable[[str], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    trained: Pipeline
    pairs: Pairs
    scores: Scores | None
    """On all the pairs put aside; None when there are none, or when training was interrupted."""
    interrupted: str | None
    """The signal that ended training, if one did: then there is no model folder yet."""


def read_data(config: DataConfig, same: Callable[[str], str] = str) -> Pairs:
    """Read the pairs that the settings name. Raises `UserError` naming file and line.

    Sources of a file that `same` makes one text never stand on two sides of its split; a corpus has
    one split whatever the settings.
    """
    if config.train:
        return read_split(
            config.train,
            config.valid,
            config.test,
            held_out=config.held_out,
            columns=config.columns,
            same=same,
        )
    if config.corpus:
        return load_corpus(config.corpus, config.split or None)
    raise UsageError("say what to train on: set data.corpus, or give files as data.train")


def read_material(config: RunConfig) -> Pairs:
    """Read what a run learns from: pairs or, for one half of a Transformer alone, texts.

    Texts are the sources and the targets of pairs, or the lines of .txt files; each stands as a
    pair with an empty source. Raises `UserError` naming file and line.
    """
    data, same = config.data, normaliser(config.tokenizer.normalise)
    if not isinstance(config.model, LanguageConfig):
        pairs = read_data(data, same)
        report_shared(pairs, same)
        return pairs
    if is_text_file(data.train):
        return read_texts(data.train[0], data.valid, data.test, held_out=data.held_out, same=same)
    return as_texts(read_data(data, same), same)


def make_tokenizers(config: TokenizerConfig, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """Learn the source's and the target's tokenizer from the training side; they may be one."""
    sources = [pair.source for pair in pairs.train]
    targets = [text for pair in pairs.train for text in pair.targets]
    sides = [sources + targets] if config.shared else [sources, targets]
    made = [
        train_tokenizer(texts, config.kind, config.vocab_size, config.normalise) for texts in sides
    ]
    return made[0], made[-1]


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

    Raises `UserError` for anything the user can mend; what was saved before is whole. Raises
    `BrokenPipeError` when nobody reads what `say` or a listener prints: a step begun is then
    finished and saved, a model trained is written.
    """
    if config.evaluation.metric == "bleu":
        check_installed()  # now, rather than after the training
    made_with = checkpoint_settings(folder) if resume else None
    if made_with is not None:  # checked before a model is made of them
        # What its tokens mean a model has learnt: that is no change that could be accepted.
        fixed = {"tokenizer": to_mapping(config.tokenizer)}
        check_resumed(folder, made_with, fixed if accept_changes else {"model": _chosen(config)})
    pairs = read_material(config)
    scores_given = ("loss", *SCORES.get(config.evaluation.metric, ()))
    config.training.check(scores_given if pairs.valid else None)
    kept = _kept_tokenizers(folder, config) if made_with is not None else []
    trained = untrained(config, kept or _learn_tokenizers(config, pairs))
    examples = encode(trained, pairs.train, config, pairs.first_target_only)
    if resume and not accept_changes and config.data.sha256 not in ("", examples.digest):
        raise UserError(
            "the training data is not what this run was started with (data.sha256 differs); put "
            "it back, or start a new run in another folder"
        )
    config = _resolve(config, trained, examples)
    if made_with is not None and not kept and made_with["data"]["sha256"] != examples.digest:
        raise UserError(
            f"{folder}: the training data is not what this run was started with, and it began "
            "before runs kept their tokenizers, so that what its tokens mean is no longer known; "
            "put the data back, or start a new run in another folder"
        )
    say(_account(pairs, examples, trained))
    settings = _settings(config)
    with RunFolder(
        folder,
        settings,
        resume=resume,
        accept_changes=accept_changes,
        beside=tokenizer_files(trained),
        judged_by=judged_by(config, pairs.valid),
    ) as run:
        trainer = trainer_of(
            trained,
            pairs,
            examples,
            config,
            run,
            listeners,
            metric=validation_metric(trained, pairs.valid, config),
            stopping=_announce_stop,
        )
        with np.errstate(over="ignore", invalid="ignore"):  # the trainer says it, with the step
            result = trainer.fit()
        if result.interrupted == "SIGPIPE":
            _log.warning(
                "nobody reads what is printed any more; step %d is saved, go on with it: %s",
                result.step,
                run.resume_command,
            )
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if result.interrupted is not None:
            return Outcome(trained, pairs, None, result.interrupted)
        scores = final_scores(trained, pairs, config)
        made = say_stored(card(folder, config, scores), store)
        save_model(folder / "model", trained, made, store)
        if scores is not None:
            written = ", ".join(f"{k} {v}" for k, v in scores.written().items())
            before = f"; scored before the weights were stored as {store}"
            say(f"put aside: {written}{'' if store == 'float32' else before}")
        say(f"model folder: {folder_size(folder / 'model')}, weights stored as {store}")
    return Outcome(trained, pairs, scores, None)


def _announce_stop(name: str) -> None:
    """Say that a signal was understood: a step and its validation may yet take a while."""
    line = (
        f"pellucid: {name}: stopping once the step under way is done and saved; a second Ctrl-C "
        "stops at once and saves nothing\n"
    )
    with suppress(OSError):
        # Past Python's streams: a signal may come while one of them is being written to.
        os.write(2, (f"\n{line}" if os.isatty(2) else line).encode())


def _learn_tokenizers(config: RunConfig, pairs: Pairs) -> Sequence[Tokenizer]:
    """Learn a tokenizer for each side; one half of a Transformer alone has one."""
    if isinstance(config.model, Seq2SeqConfig):
        return make_tokenizers(config.tokenizer, pairs)
    return make_tokenizers(replace(config.tokenizer, shared=True), pairs)


def _kept_tokenizers(folder: Path, config: RunConfig) -> Sequence[Tokenizer]:
    """Read the tokenizers that a run began with; runs once began without keeping them: then none.

    Raises `UserError` naming a file that is damaged.
    """
    one = config.tokenizer.shared or not isinstance(config.model, Seq2SeqConfig)
    paths = [folder / name for name in ((TOKENIZER,) if one else (TOKENIZER, TARGET_TOKENIZER))]
    return [Tokenizer.load(path) for path in paths] if all(p.exists() for p in paths) else []


def untrained(config: RunConfig, tokenizers: Sequence[Tokenizer]) -> Pipeline:
    """Draw the model that a run begins with, its vocabularies as large as the tokenizers.

    tokenizers: the source's and the target's; they may be one. Raises `UsageError` for special
    tokens that are not the tokenizers'.
    """
    model = config.model
    if fault := token_fault(model):
        raise UsageError(f"model.{fault}")
    source, target = tokenizers[0], tokenizers[-1]
    if isinstance(model, Seq2SeqConfig):
        model = replace(
            model, source_vocab_size=source.vocab_size, target_vocab_size=target.vocab_size
        )
        return Seq2SeqPipeline(Seq2Seq(model, seed=config.seed), source, target, config.search)
    if isinstance(model, CausalLMConfig):
        causal = CausalLM(replace(model, vocab_size=target.vocab_size), seed=config.seed)
        return CausalLMPipeline(causal, target, target, config.search)
    masked = replace(model, vocab_size=target.vocab_size + 1)  # the mask is the last
    return MaskedLMPipeline(MaskedLM(masked, seed=config.seed), target)


def _resolve(config: RunConfig, trained: Pipeline, examples: Examples) -> RunConfig:
    """Fill in what only the data can say."""
    data = replace(config.data, sha256=examples.digest)
    return replace(config, model=trained.model.config, data=data)


def judged_by(config: RunConfig, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return what the score that decides what is best depends on, beside the weights.

    pairs: those put aside for it. Settings stand under their own names.
    """
    monitor = config.training.monitor
    answers = {"evaluation": to_mapping(config.evaluation), "search": to_mapping(config.search)}
    texts = json.dumps([[pair.source, *pair.targets] for pair in pairs])
    return {
        "training": {"monitor": monitor, "higher_is_better": config.training.higher_wins},
        "data": {"max_tokens": config.data.max_tokens},
        "held_out": hashlib.sha256(texts.encode()).hexdigest(),
        **(answers if monitor != "loss" else {}),
    }


def _settings(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings as its folder keeps them.

    An encoder-decoder's have no model_type, so that runs begun before there were others go on.
    """
    settings = to_mapping(config)
    if isinstance(config.model, Seq2SeqConfig):
        del settings["model"]["model_type"]
    return settings


def _chosen(config: RunConfig) -> dict[str, Any]:
    """Return the model's settings without those that the data say."""
    settings = _settings(config)["model"]
    return {name: value for name, value in settings.items() if not name.endswith("vocab_size")}


def batches_of(examples: Examples, config: RunConfig) -> Batches:
    """Return the batches that a run trains on: of batch_size pairs, or else of batch_tokens."""
    size = config.data.batch_size
    return Batches(
        examples,
        seed=config.seed,
        batch_tokens=config.data.batch_tokens if size is None else None,
        batch_size=size,
        bucketed=config.data.bucketed,
    )


def trainer_of(
    trained: Pipeline,
    pairs: Pairs,
    examples: Examples,
    config: RunConfig,
    run: RunFolder,
    listeners: Iterable[Listener] = (),
    *,
    metric: Metric | None = None,
    stopping: Callable[[str], object] = lambda name: None,
) -> Trainer:
    """Return the trainer of a run, on its encoded training pairs and its validation pairs."""
    held_out = encode(trained, pairs.valid, config, True) if pairs.valid else None
    return Trainer(
        trained.model,
        batches_of(examples, config),
        config.training,
        validation=held_out_batches(held_out, config.data.batch_tokens) if held_out else (),
        metric=metric,
        run=run,
        listeners=listeners,
        stopping=stopping,
    )


def final_scores(trained: Pipeline, pairs: Pairs, config: RunConfig) -> Scores | None:
    """Return the scores on the test pairs, else on the validation pairs; None without either."""
    held_out = pairs.test or pairs.valid
    return score(trained, held_out, config) if held_out else None


def _account(pairs: Pairs, examples: Examples, trained: Pipeline) -> str:
    aside = [
        f"{len(side):,} for {use}"
        for side, use in ((pairs.valid, "validation"), (pairs.test, "the final score"))
        if side
    ]
    if isinstance(trained, Seq2SeqPipeline):
        unit = "pairs"
        tokens = f"{trained.source.vocab_size:,} source and {trained.target.vocab_size:,} target"
    else:
        unit, tokens = "texts", f"{trained.tokenizer.vocab_size:,}"
    return (
        f"{len(examples):,} {unit} to learn from"
        + (f", put aside {' and '.join(aside)}" if aside else "")
        + f"; {tokens} tokens in the vocabulary"
    )


ABOUT = {
    Seq2SeqConfig: "An encoder-decoder Transformer.",
    CausalLMConfig: "A Transformer's decoder alone: it continues a text.",
    MaskedLMConfig: "A Transformer's encoder alone: it fills [MASK] in a text.",
}


def card(folder: Path, config: RunConfig, scores: Scores | None) -> str:
    """Return the model card of a run."""
    named = shlex.quote(str(folder))
    if config.data.train:
        data = [f"Files of the user's own: {', '.join(p.name for p in config.data.train)}."]
    else:
        corpus = find_corpus(config.data.corpus)
        data = [
            f"{corpus.about}. Origin: {corpus.origin}. Licence: {corpus.licence}. "
            f"Cite: {corpus.citation}."
        ]
    return model_card(
        folder.resolve().name,
        about=f"{ABOUT[type(config.model)]} {config.description}".strip(),
        data=data,
        scores=scores.written() if scores else {},
        settings=_settings(config),
        usage=[f"pellucid {verb} {named}" for verb in ("generate", "evaluate")],
        limits="It knows its training data and what is like it; nothing was done to make its "
        "answers true, safe or fair.",
    )
