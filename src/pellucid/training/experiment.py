"""Do a run by its settings: read data, build, train, evaluate, save the model."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core import dispatch
from pellucid.core.batch import Batch
from pellucid.core.errors import UsageError, UserError, install
from pellucid.core.parts import imports
from pellucid.core.settings import to_mapping
from pellucid.data.appearance import reading_of
from pellucid.data.batches import Batches, Examples, held_out_batches
from pellucid.data.bpe_dropout import bpe_dropout
from pellucid.data.corpora import load_corpus
from pellucid.data.files import is_file_of_pairs, is_text_file, read_split, with_more
from pellucid.data.pairs import Splits, TextPair, as_texts, report_shared
from pellucid.data.tokenizers import SPECIALS, UNK, Tokenizer, train_tokenizer
from pellucid.interop.huggingface import TARGET_TOKENIZER, write_pretrained
from pellucid.kernels.device import CPU, Precision, check_device, described, place
from pellucid.kernels.precision import products_for
from pellucid.models.quantize import WeightFormat
from pellucid.system.command import command
from pellucid.system.language import Text, plural
from pellucid.tasks import Seq2SeqTask, Task, task_of
from pellucid.tasks.folder import CARD, TOKENIZER, folder_size, save_model, tokenizer_files
from pellucid.tasks.metrics import METRICS
from pellucid.tasks.passage import columns_of, sentences_together
from pellucid.tasks.scores import Scores
from pellucid.training.card import card, examples_of, note_quantized
from pellucid.training.checkpoint import checkpoint_paths
from pellucid.training.config import RunConfig, TrainingConfig
from pellucid.training.events import Listener
from pellucid.training.run import (
    CHECKPOINTS,
    CONFIG,
    START,
    Remembered,
    RunFolder,
    check_resumed,
    read_metrics,
)
from pellucid.training.start import Start, enlarged, new_tokens, opened, warn_of_other_data
from pellucid.training.trainer import Result, Trainer, ValidationMetric

Say = Callable[[Text], None]
Watch = Callable[[Task, Splits], Listener]
"""Function that makes a listener with access to the model and the data."""

STILL_IMPROVES = 0.05
"""Relative improvement of the last validation over the best before from which longer training is
suggested: a schedule that falls to 0 always gains a little at its end."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    trained: Task
    pairs: Splits
    scores: Scores | None
    """Scores on all test pairs, or else validation pairs; None without either, or if training was
    interrupted."""
    interrupted: str | None
    """The signal that ended training, if any; there is then no model folder yet."""


def read_data(config: RunConfig, *, texts: bool = False) -> Splits:
    """Read the data that the settings name.

    Sources of a file that the tokenizer maps to the same text are on the same side of its split;
    that of a corpus depends only on `data.split`. `data.more` is added to the training pairs.
    texts: the files hold texts, see `read_split`. Raises `UserError` for errors in a file or a
    corpus, and `UsageError` without data, or for a setting that does not fit the files.
    """
    data = config.data
    if data.stream and not texts:
        raise UsageError("data.stream is for a model of one text, with a .txt file to learn from")
    if data.train:
        pairs = read_split(
            data.train,
            data.valid,
            data.test,
            held_out=data.held_out,
            columns=data.columns,
            same=config.tokenizer.group,
            texts=texts,
            stream=data.stream,
            leave_out=data.leave_out,
        )
    elif data.corpus:
        pairs = load_corpus(data.corpus, data.split or None)
    else:
        raise UsageError("no training data: set data.corpus, or give files as data.train")
    files = (*data.train, *data.valid, *data.test, *data.more)
    if data.columns and data.train and not any(map(is_file_of_pairs, files)):
        raise UsageError(
            "data.columns is for .tsv, .csv and .jsonl files; text files have none: leave it out"
        )
    return with_more(pairs, data.more, data.columns, config.tokenizer.group, data.leave_out)


def read_material(config: RunConfig) -> Splits:
    """Read the data of a run: pairs or, for a model that continues or fills texts, texts.

    Texts are the sources and targets of pairs, or the lines of .txt files (with `data.stream`, the
    whole file); each becomes a pair with an empty source. White space is removed around labels, and
    training pairs with rare ones are repeated by `data.balance`. Warnings count held-out pairs or
    texts that are in the training data too. Raises as `read_data` and `as_texts`.
    """
    data, same = config.data, config.tokenizer.same
    if (kind := task_of(config.model).kind) in ("answer", "label"):
        pairs = read_data(config)
        if kind == "label":  # a label with a blank behind it would be another label
            train, valid, test = map(_stripped, (pairs.train, pairs.valid, pairs.test))
            if len({pair.target for pair in train}) == 1:
                _log.warning(f"all texts have one label, {train[0].target!r}: nothing to learn")
            pairs = replace(pairs, train=balanced(train, data.balance), valid=valid, test=test)
        report_shared(pairs, same)
        return pairs
    texts = is_text_file(data.train)
    if texts and data.more:
        raise UsageError("data.more is for pairs; put its texts into the file of texts")
    return as_texts(read_data(config, texts=texts), same, repeated=texts)


def balanced(pairs: Sequence[TextPair], share: float) -> tuple[TextPair, ...]:
    """Repeat pairs with rare labels, by the setting `data.balance`, which is `share`.

    A pair comes (m / n)^share times, rounded, if its label has n pairs, the most frequent one m.

    >>> pairs = [TextPair("a", ("x",)), TextPair("b", ("x",)), TextPair("c", ("y",))]
    >>> [pair.source for pair in balanced(pairs, 1.0)]
    ['a', 'b', 'c', 'c']
    """
    counts = Counter(pair.target for pair in pairs)
    most = max(counts.values(), default=0)
    return tuple(p for p in pairs for _ in range(round((most / counts[p.target]) ** share)))


def check_scores(config: RunConfig, pairs: Splits) -> None:
    """Check that the scores of the settings, and the one to monitor, can be computed.

    Raises `UserError` otherwise, before training rather than after it.
    """
    usual = task_of(config.model).usual_metric
    metric = METRICS.get(config.evaluation.metric, METRICS.get(usual))  # none has no record
    if metric:
        metric.check()  # now, rather than after the training
    config.training.check(("loss", *(metric.scores if metric else ())) if pairs.valid else None)


def _stripped(pairs: Sequence[TextPair]) -> tuple[TextPair, ...]:
    """Remove white space at the edges of all targets."""
    return tuple(TextPair(p.source, tuple(t.strip() for t in p.targets)) for p in pairs)


COMMENT = re.compile(r"(^|\s)(#|;|//)\s*\w")
"""A comment behind the phones in a lexicon."""


def make_tokenizers(config: RunConfig, pairs: Splits) -> tuple[Tokenizer, Tokenizer]:
    """Learn the source's and the target's tokenizers from the training data; return both.

    They are the same object if the sides share one. Logs a warning if texts look wrong for the kind
    "word". Raises as `train_tokenizer`.
    """
    own = replace(config.tokenizer, shared=_has_one_tokenizer(config))
    sources = [pair.source for pair in pairs.train]
    targets = [text for pair in pairs.train for text in pair.targets]
    task = task_of(config.model).kind
    share = 2 if task == "label" else 10  # labels are words that come often
    sides = [(sources + targets, own.kind)]
    if not own.shared:
        sides = [(sources, own.kind), (targets, own.target_kind or own.kind)]
    for (texts, kind), setting in zip(sides, ("kind", "target_kind"), strict=False):
        if kind == "word" and (noted := [text for text in texts if COMMENT.search(text)]):
            _log.warning(
                f"{len(noted):,} of {len(texts):,} texts have what looks like a comment, which is "
                f"learnt as any other word: {noted[0]}; take comments out of the file"
            )
        words = kind == "word" and len(set(texts)) > len(texts) // share
        if words and not any(len(text.split()) > 1 for text in texts):
            _log.warning(
                f"none of {len(texts):,} texts has a space, so each is one token, "
                f"{len(set(texts)):,} different ones: put spaces between the symbols, or set "
                f"tokenizer.{setting} to char"
            )
    whole = task in ("answer", "label")
    readings = [reading_of(sides[0][0], whole) if own.typed else None, None]
    made = [
        train_tokenizer(texts, kind, own.vocab_size, own.normalise, reading)
        for (texts, kind), reading in zip(sides, readings, strict=False)
    ]
    return made[0], made[-1]


def _has_one_tokenizer(config: RunConfig) -> bool:
    """Return whether source and target share a tokenizer."""
    return config.tokenizer.shared or len(task_of(config.model).vocabularies) == 1


def train_run(
    config: RunConfig,
    folder: Path,
    *,
    resume: bool = False,
    accept_changes: bool = False,
    weights: WeightFormat | None = None,
    device: str = CPU,
    precision: Precision = "float32",
    listeners: Iterable[Listener] = (),
    say: Say = lambda line: None,
    watch: Watch | None = None,
) -> Outcome:
    """Train as `config` says in a run folder, and write the folder `model` inside it.

    resume, accept_changes: see `RunFolder`. say: receives lines on the data, the final scores and
    the model folder. device, precision: see `kernels.device`; they are not settings, so that a run
    may be resumed on another device.
    weights: format of the model folder; default, float32 or that of the resumed run. watch: called
    with the model and its data before anything is written; makes one more listener. The returned
    model is on the CPU.

    Raises `UserError` for errors that the user can fix; everything saved before stays usable.
    Raises `BrokenPipeError` if the output of `say` or of a listener is no longer read. If that
    happens during training, the present step is finished and saved first; if after the last step,
    the model is written first.
    """
    check_device(device, precision)
    products = products_for(device, precision)
    weights = weights or (Remembered.of(folder).weights if resume else "float32")
    if config.start is not None and config.start.model_type and weights != "float32":
        raise UsageError(
            f"the model is written as transformers reads it, in float32; leave `weights` {weights} "
            "out"
        )
    prepared = _prepare(config, folder, resume, accept_changes)
    config, pairs, trained = prepared.config, prepared.pairs, prepared.trained
    start = prepared.start
    place(trained.model, device, precision)
    watcher = () if watch is None else (watch(trained, pairs),)
    say(_account(prepared))
    if not dispatch.AVAILABLE:
        _log.warning(
            "Numba is not installed: every op runs as its reference, in several times the "
            f"time; to install it: {install('kernels')}"
        )
    theirs = start is not None and start.config.model_type
    files = {} if theirs else tokenizer_files(trained)
    files |= Remembered(digest_of(pairs.scored), weights, imports()).file()
    with RunFolder(
        folder,
        config.as_mapping(),
        resume=resume,
        accept_changes=accept_changes,
        further=files,
        scoring=scoring(config, pairs.valid),
        device=described(device, precision),
    ) as run:
        if start is not None:
            run.begin()
            start.keep(folder / START)
        with products:
            trainer = prepared.trainer(
                run, (*listeners, *watcher), metric=prepared.metric(), stopping=_announce_stop
            )
            with np.errstate(over="ignore", invalid="ignore"):  # it reports that, with the step
                result = trainer.fit()
        if result.interrupted == "SIGPIPE":
            _log.warning(
                f"the output is no longer read; step {result.step} is saved, resume from it: "
                f"{run.resume_command}"
            )
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        scores = None if result.interrupted else prepared.final_scores()
        place(trained.model, CPU)
        if result.interrupted is None:
            _write_model(prepared, folder, scores, weights)
            for line in (
                *_result_lines(folder, scores, weights),
                *_longer(config.training, folder, result, run.scored_since),
            ):
                say(line)
    return Outcome(trained, pairs, scores, result.interrupted)


@dataclass(frozen=True)
class Prepared:
    """A model with its tokenized data, ready to be trained."""

    config: RunConfig
    """The settings, completed from the data."""
    pairs: Splits
    trained: Task
    examples: Examples
    """The training pairs as token ids."""
    start: Start | None = None
    """The existing model that the run begins with, if any."""

    @classmethod
    def of(
        cls, config: RunConfig, pairs: Splits, trained: Task, start: Start | None = None
    ) -> Prepared:
        """Tokenize the training pairs for a model; `config` gets the model's own settings."""
        examples = encode(trained, pairs.train, config, pairs.first_target_only)
        return cls(replace(config, model=trained.model.config), pairs, trained, examples, start)

    def batches(self) -> Batches:
        """Return the batches of all epochs, by `data.batch_size` or else by `data.batch_tokens`.

        With BPE-dropout they may have more tokens. Raises `UsageError` as `Batches` and
        `bpe_dropout`.
        """
        data, size = self.config.data, self.config.data.batch_size
        dropout, tokenizers = self.config.tokenizer.dropout, self.trained.tokenizers
        redraw = None
        if dropout:
            redraw = bpe_dropout(tokenizers[0], tokenizers[-1], dropout, data.max_tokens)
        return Batches(
            self.examples,
            seed=self.config.seed,
            batch_tokens=data.batch_tokens if size is None else None,
            batch_size=size,
            bucketed=data.bucketed,
            redraw=redraw,
        )

    def metric(self) -> ValidationMetric | None:
        """Return the function that scores answers or labels at validations, or None.

        See `Task.validation`.
        """
        how = self.config.evaluation
        return self.trained.validation(self.pairs.valid, how.metric, how.pairs)

    def trainer(
        self, run: RunFolder | None, listeners: Iterable[Listener], **options: Any
    ) -> Trainer:
        """Make the trainer with its training and validation batches.

        run: None saves nothing. options: further arguments of `Trainer`.
        """
        held_out: Sequence[Batch] = ()
        if valid := self.pairs.valid:
            examples = encode(self.trained, valid, self.config, True)
            held_out = held_out_batches(examples, self.config.data.batch_tokens)
        options |= {"validation": held_out, "run": run, "listeners": listeners}
        return Trainer(self.trained.model, self.batches(), self.config.training, **options)

    def final_scores(self) -> Scores | None:
        """Evaluate the model on the test pairs, or else the validation pairs.

        None without either.
        """
        held_out = self.pairs.scored
        return score(self.trained, held_out, self.config) if held_out else None


def _prepare(config: RunConfig, folder: Path, resume: bool, accept_changes: bool) -> Prepared:
    """Read and tokenize the data, and build or open the model.

    Raises, before anything is written, for settings, data or a model that do not fit the run.
    """
    goes_on = False
    if resume:  # checked before a model is made of them
        settings = config.as_mapping()
        # The model has learnt what its tokens mean, so a tokenizer's change cannot be accepted.
        fixed = {"tokenizer": settings["tokenizer"]}
        if not accept_changes:
            # The vocabularies' sizes and the unknown token follow from the data: `RunFolder`
            # compares them, when they are known.
            model, later = settings["model"].items(), ("vocab_size", "suppress_tokens")
            fixed = {"model": {k: v for k, v in model if not k.endswith(later)}}
        goes_on = check_resumed(folder, fixed)
    start = None
    if config.start is not None:
        start = opened(config.start, folder if resume else None, accept_changes)
        config = replace(config, start=replace(config.start, sha256=start.config.sha256))
    pairs = read_material(config)
    check_scores(config, pairs)
    if start is not None:
        trained, size = start.task(config), start.tokenizer.vocab_size
        if not start.config.model_type:
            kept = folder if goes_on and (folder / TOKENIZER).is_file() else None
            made = _tokenizers(config, pairs, kept, trained)
            size = max(tokenizer.vocab_size for tokenizer in made)
            trained = enlarged(trained, made, config.seed)
        if not resume:  # the tokenizer's own, whatever the settings allow
            config = replace(config, tokenizer=replace(config.tokenizer, vocab_size=size))
    else:
        made = _tokenizers(config, pairs, folder if goes_on else None)
        trained = task_of(config.model).build(config.model, made, config.search, config.seed)
    sources = [pair.source for pair in pairs.train]
    if isinstance(trained, Seq2SeqTask):
        trained = replace(trained, sentences=sentences_together(sources))
    trained = replace(trained, metric=config.evaluation.metric, columns=columns_of(sources))
    prepared = Prepared.of(config, pairs, trained, start)
    digest = prepared.examples.digest
    if resume and not accept_changes and config.data.sha256 not in ("", digest):
        raise UserError(
            "the training data is not what this run was started with (data.sha256 differs); put "
            "it back, accept it with `accept_changes`, or start a new run in another folder"
        )
    config = replace(prepared.config, data=replace(config.data, sha256=digest))
    prepared = replace(prepared, config=config)
    prepared.batches()  # raises for wrong sizes before there is a folder
    seen = checkpoint_paths(folder / CHECKPOINTS)[-1:] if goes_on else []
    if start is not None:
        run = start.config.folder.parent
        if not resume and (run / CONFIG).is_file():
            seen = [run]
    if pairs.scored:
        warn_of_other_data(config.data, seen)
    return prepared


def _tokenizers(
    config: RunConfig,
    pairs: Splits,
    kept: Path | None,
    before: Task | None = None,
) -> Sequence[Tokenizer]:
    """Return the tokenizer of each vocabulary.

    kept: folder of a resumed run with its tokenizers. If None, they are learned from the data, or
    extended from those of the task `before`. Raises `UserError` naming a file that is missing or
    damaged.
    """
    if kept is not None:
        one = _has_one_tokenizer(config)
        names = (TOKENIZER,) if one else (TOKENIZER, TARGET_TOKENIZER)
        return [Tokenizer.load(kept / name) for name in names]
    made = new_tokens(before, pairs.train) if before else make_tokenizers(config, pairs)
    return list(dict.fromkeys(made))


def _write_model(
    prepared: Prepared, folder: Path, scores: Scores | None, weights: WeightFormat
) -> None:
    """Write the model folder with its card."""
    config, trained = prepared.config, prepared.trained
    texts = examples_of(trained.kind, config.data, prepared.pairs.valid)
    made = note_quantized(card(folder, config, scores, texts, _unknown(prepared)), weights)
    if config.start is not None and config.start.model_type:
        write_pretrained(trained.model, folder / START, folder / "model", {CARD: made.encode()})
    else:
        save_model(folder / "model", trained, made, weights)


def _unknown(prepared: Prepared) -> str:
    """Return a sentence on the share of target tokens that are unknown, or ""."""
    trained, targets = prepared.trained, prepared.examples.target.without_first().tokens
    if not (trained.generates and isinstance(trained.target, Tokenizer)):
        return ""
    if not (count := int((targets == UNK).sum())):
        return ""
    return (
        f"{count:,} of {len(targets):,} target tokens ({count / len(targets):.1%}) were "
        f"{SPECIALS[UNK]}: text that the vocabulary does not have. The loss counts them; the model "
        "never generates one."
    )


def _result_lines(folder: Path, scores: Scores | None, weights: WeightFormat) -> Iterable[Text]:
    """Yield lines on the final scores and the size of the model folder."""
    if scores is not None:
        if (found := scores.measured) is not None:
            scores = replace(scores, measured=found._replace(details={}))
        en, ko = (", ".join(map(" ".join, scores.written(one).items())) for one in ("en", "ko"))
        held_out = Text(f"held out: {en}", f"평가용 데이터: {ko}")
        if weights != "float32":
            before = f"; scored before the weights were stored as {weights}"
            held_out = Text(held_out.en + before, f"{held_out.ko}({weights}로 저장하기 전의 점수)")
        yield held_out
    size = folder_size(folder / "model")
    yield Text(
        f"model folder: {size}, weights stored as {weights}",
        f"모델 폴더: {size}, 가중치는 {weights}로 저장",
    )


def _longer(config: TrainingConfig, folder: Path, result: Result, since: int = 0) -> Iterable[Text]:
    """Suggest longer training if the score still improved when a limit was reached.

    since: scores up to this step are not compared, because data or settings changed there.
    """
    limit = result.reason.rpartition(" ")[2].removesuffix("s") + "s"
    records = [each for each in read_metrics(folder) if each["step"] > since]
    validated = [each for each in records if each["event"] == "validated"]
    found = [{"loss": each["loss"], **each["scores"]} for each in validated]
    scores = [each[config.monitor] for each in found if config.monitor in each]
    if limit not in ("steps", "epochs", "minutes") or len(scores) < 3:
        return
    best = max(scores[:-1]) if config.higher_wins else min(scores[:-1])
    if result.best_step != result.step or abs(scores[-1] - best) < STILL_IMPROVES * abs(best):
        return
    more = {f"training.{limit}": f"{2 * getattr(config, limit):.12g}"}
    again = command("train", folder, resume=True, accept_changes=True, **more)
    change = f"{config.monitor} {best:.3g} → {scores[-1]:.3g}"
    yield Text(
        f"the held-out score still improved at the end ({change}); to train longer: {again}",
        f"평가 점수가 끝까지 좋아지고 있었습니다({change}). 더 오래 학습하려면: {again}",
    )


def _announce_stop(name: str) -> None:
    """Acknowledge a signal at once: finishing the step and a validation may take long."""
    line = (
        f"pellucid: {name}: stopping after the current step, which is saved; a second Ctrl-C "
        "stops at once and saves nothing\n"
    )
    with suppress(OSError):
        # Past Python's streams: a signal may come while one of them is being written to.
        os.write(2, (f"\n{line}" if os.isatty(2) else line).encode())


def encode(
    trained: Task, pairs: Sequence[TextPair], config: RunConfig, first_target_only: bool
) -> Examples:
    """Tokenize pairs for a model, with at most the run's `max_tokens` on a side."""
    return trained.encode(
        pairs, max_tokens=config.data.max_tokens, first_target_only=first_target_only
    )


def score(trained: Task, pairs: Sequence[TextPair], config: RunConfig) -> Scores:
    """Evaluate a model on pairs with the run's metric and sizes; see `Task.evaluate`."""
    return trained.evaluate(
        pairs,
        config.evaluation.metric,
        max_tokens=config.data.max_tokens,
        batch_tokens=config.data.batch_tokens,
    )


def scoring(config: RunConfig, pairs: Sequence[TextPair]) -> dict[str, Any]:
    """Return the settings that the score to monitor depends on, and a digest of the data, by name.

    A resumed run compares them with those of its checkpoint. pairs: the validation pairs.
    """
    monitor = config.training.monitor
    answers = {"evaluation": to_mapping(config.evaluation), "search": to_mapping(config.search)}
    return {
        "training": {"monitor": monitor, "higher_is_better": config.training.higher_wins},
        "data": {"max_tokens": config.data.max_tokens},
        "held_out": digest_of(pairs),
        **(answers if monitor != "loss" else {}),
    }


def digest_of(*parts: Sequence[TextPair]) -> str:
    """Return the SHA-256 of the texts of pairs, part by part, in hexadecimal.

    >>> digest_of((TextPair("1", ("one",)),), (), ())[:12]
    'f70a20b6c9d0'
    """
    each = (json.dumps([[pair.source, *pair.targets] for pair in pairs]) for pairs in parts)
    return hashlib.sha256("".join(each).encode()).hexdigest()


def _account(prepared: Prepared) -> Text:
    """Return a line that states the amount of data and its use."""
    trained, pairs = prepared.trained, prepared.pairs
    noun, unit_ko = ("pair", "쌍") if trained.kind == "answer" else ("text", "텍스트")
    unit = Text(plural(len(prepared.examples), noun), unit_ko)
    uses = {"validation": ("검증용", pairs.valid), "the final score": ("최종 평가용", pairs.test)}
    en = " and ".join(f"{len(side):,} for {use}" for use, (_, side) in uses.items() if side)
    ko = ", ".join(f"{use} {len(side):,}개" for use, side in uses.values() if side)
    sizes = [f"{tokenizer.vocab_size:,}" for tokenizer in trained.tokenizers]
    if len(sizes) == 1:
        tokens = Text(sizes[0], sizes[0])
    else:
        tokens = Text("{} source and {} target".format(*sizes), "입력 {}, 출력 {}".format(*sizes))
    count, first, en_first, ko_first = f"{len(prepared.examples):,}", pairs.train[0], "", ""
    if "\t" in first.source:  # columns of a table can be taken for each other
        example = " → ".join([first.source.replace("\t", " + "), first.target])
        en_first, ko_first = f"; the first: {example}", f"; 첫 쌍: {example}"
    return Text(
        f"{count} {unit.en} to learn from{en and f', held out {en}'}; {tokens.en} tokens in the "
        f"vocabulary{en_first}",
        f"학습할 {unit.ko} {count}개{ko and f', 따로 둔 {unit.ko}: {ko}'}; 어휘의 토큰 수: "
        f"{tokens.ko}{ko_first}",
    )
