"""Do one run of a study, in any process: train, measure, return a line of results.

Its folder is a run folder like that of `pellucid train`, so it resumes from its newest checkpoint.
`result.json` is written last and marks it as done.
"""

import json
import logging
import shutil
import signal
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pellucid.apps.lab.measures import MEASURES, Pass
from pellucid.apps.lab.metrics import metrics_of
from pellucid.apps.lab.processes import PATIENCE
from pellucid.apps.lab.results import FORMAT, LineError, parse_line
from pellucid.apps.lab.study import Plan, Trial, flat_settings
from pellucid.core.batch import Batch
from pellucid.core.errors import UserError, raised_as
from pellucid.core.parts import read, use
from pellucid.core.settings import to_mapping
from pellucid.data.pairs import Splits
from pellucid.data.pieces import Pieces
from pellucid.data.tokenizers import BOS, EOS, SPECIALS, Tokenizer, TokenizerLike
from pellucid.kernels.backend.machine import processor, processors
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn.recorder import Recorder
from pellucid.system.files import SavingError, saving, write_atomically
from pellucid.tasks import Seq2SeqTask
from pellucid.training.events import Ended, Event, Listener, Saved, Started, Stepped
from pellucid.training.experiment import (
    Prepared,
    check_scores,
    digest_of,
    make_tokenizers,
    read_data,
)
from pellucid.training.lock import InUseError, Lock
from pellucid.training.run import CHECKPOINTS, LOCK, RunFolder, read_metrics

logger = logging.getLogger(__name__)

RESULT, PROBES, DATA = "result.json", "probes.jsonl", "data.sha256"
PROBED_PAIRS = 64


class _StopError(Exception):
    """The run was asked to stop: before it began, or after it wrote a checkpoint."""


def run_trial(
    trial: Trial, folder: Path, stop: Path | None = None, imports: Sequence[str] = ()
) -> dict[str, Any]:
    """Do or resume one run, if it is not done yet; return its line for the results file.

    imports: files and modules of the user's parts, which a new process must import. stop: the run
    saves and stops once this file exists: after its step, or, in a thread other than the main one,
    at its next checkpoint.

    `status` is "done", or "failed" with the reason in `error`. With another status the run can be
    resumed and the line is not for the file: "interrupted" (by a signal or `stop`), "in use"
    (another process has the folder) or "not saved" (the disk is full). Errors are not raised,
    except interrupts, because an error in one run must not end the others.
    """
    began = time.monotonic()
    try:
        for part in imports:
            use(part)
        for file in trial.plan.imports:
            read(file)
        if (line := _finished(trial, folder)) is not None:
            return line
        if stop is not None and stop.exists():
            raise _StopError
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            return _train(trial, folder, stop)
    except _StopError:
        return _line(trial, "interrupted", error="it was stopped, and has saved")
    except InUseError as error:
        return _line(trial, "in use", error=str(error))
    except SavingError as error:
        return _line(trial, "not saved", error=str(error))
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return failure(trial, reason, (time.monotonic() - began) / 60)


def failure(trial: Trial, error: str, minutes: float) -> dict[str, Any]:
    """Make the line of a run that failed with this error after some minutes."""
    return _line(trial, "failed", error=error, minutes=minutes)


def _line(trial: Trial, status: str, **found: Any) -> dict[str, Any]:
    """Make a line of results with the fields that all lines have."""
    return {
        "format": FORMAT,
        "study": trial.study,
        "change": trial.change,
        "seed": trial.seed,
        "id": trial.id,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "status": status,
        **found,
    }


def _finished(trial: Trial, folder: Path) -> dict[str, Any] | None:
    """Return the line of a run that is already done, or None.

    A result that cannot be used is logged as a warning: damaged, of another run, or of other data.
    """
    path = folder / RESULT
    try:
        line = parse_line(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except LineError as error:
        wrong = error.reason
    else:
        if (line["status"], line["id"]) != ("done", trial.id):
            wrong = f"is not the result of run {trial.id}"
        elif "data" in line and line["data"] != (now := data_digest(read_data(trial.config))):
            wrong = f"is of {other_data(line['data'], now)}"
        else:
            return line
    logger.warning("%s: %s; the run is done again", path, wrong)
    return None


# data ---------------------------------------------------------------------------------------------


def data_digest(pairs: Splits) -> str:
    """Return the SHA-256 of all pairs: training, validation and test."""
    return digest_of(pairs.train, pairs.valid, pairs.test)


def other_data(before: str, now: str) -> str:
    """Describe data whose digest has changed, for an error message."""
    return f"other data (SHA-256 of its pairs {before[:12]}…, now {now[:12]}…)"


def _check_data(run: RunFolder, digest: str) -> None:
    """Raise `UserError` if the data of a resumed run differs from that of its start."""
    path = run.path / DATA
    resumed = run.checkpoint is not None and path.exists()
    before = path.read_text("utf-8", "replace") if resumed else digest
    if before != digest:
        raise UserError(
            f"{run.path}: this run began with {other_data(before, digest)}; put the data back, or "
            "delete the folder to start over, and retry"
        )
    write_atomically(path, digest.encode())


class FramedTokenizer(Pieces):
    """Tokenizer that puts begin and end tokens around every text.

    Article 003 does so with its sources too.
    """

    encode = TokenizerLike.encode  # by `encode_all`

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts.

        Each result begins with the begin token and ends with the end token.
        """
        return [[BOS, *ids, EOS] for ids in super().encode_all(texts)]


def file_tokenizers(text: str, frame_source: bool) -> tuple[Tokenizer, Tokenizer]:
    """Make the source and target tokenizers from the text of one tokenizer.json.

    All kinds that Hugging Face's library reads are allowed. Raises `UserError` if the text is
    damaged, or unless ids 0 to 3 are padding, begin, end and unknown.
    """
    # The library raises bare Exception for every error in the file.
    with raised_as(UserError, Exception, where="the study's tokenizer is damaged, copy it again"):
        file = json.loads(text)
        # "bpe" here says only that no list of unknown characters can be made from the vocabulary.
        source, target = (FramedTokenizer if frame_source else Pieces)(file), Pieces(file)
    found = source.vocabulary[: len(SPECIALS)]
    if found != list(SPECIALS):
        raise UserError(
            f"the study's tokenizer: expected {', '.join(SPECIALS)} as ids 0 to 3, got "
            f"{', '.join(found)}"
        )
    return source, target if frame_source else source


# training -----------------------------------------------------------------------------------------


def _train(trial: Trial, folder: Path, stop: Path | None) -> dict[str, Any]:
    """Train or resume one run in its folder.

    Write its result.json and return the line.
    """
    begun = (folder / LOCK).exists()
    if begun:
        # A folder in use is refused before anything is read; an orphan may still be saving.
        Lock(folder / LOCK, PATIENCE + 10.0).release()
    config, plan = trial.config, trial.plan
    pairs = read_data(config)
    check_scores(config, pairs)
    if trial.tokenizer:
        both = file_tokenizers(trial.tokenizer, plan.frame_source)
    else:
        both = make_tokenizers(config, pairs)
    # check_study lets no other task through.
    task = Seq2SeqTask.build(config.model, both, config.search, config.seed)
    prepared = Prepared.of(config, pairs, task)
    model, config, examples = task.model, prepared.config, prepared.examples
    digest = data_digest(pairs)
    with RunFolder(folder, to_mapping(config), resume=begun) as run:
        _check_data(run, digest)
        if run.checkpoint is None:  # it starts over: these are of the model before
            (folder / PROBES).unlink(missing_ok=True)
        some = np.linspace(0, len(examples) - 1, min(PROBED_PAIRS, len(examples)))
        probed = examples.batch(some.astype(np.int64))  # from all over the data, always the same
        prober = partial(_probe_if, model, probed, plan, folder / PROBES)
        listeners: list[Listener] = [prober, partial(_stop_if, stop)]
        # The answers to validation pairs take time, and have no other use here.
        metric = prepared.metric() if config.training.monitor != "loss" else None
        trainer = prepared.trainer(run, listeners, metric=metric)
        ended = trainer.fit()
        if ended.interrupted is not None:
            raise _StopError
        minutes = trainer.seconds / 60
        found, scores = prepared.final_scores(), dict[str, float]()
        if found is not None and found.measured is not None:
            scores |= found.measured.values
        if found is not None and pairs.test:  # the loss on validation pairs has its own metrics
            scores["test_loss"] = found.loss
        curve, probes = learning_curve(folder), read_probes(folder / PROBES)
        line = _line(
            trial,
            "done",
            metrics=metrics_of(curve, scores, probes),
            curve=curve,
            probes=probes,
            steps=ended.step,
            minutes=minutes,
            parameters=sum(p.data.size for p in model.parameters()),
            vocabulary=[tokenizer.vocab_size for tokenizer in both],
            pairs=len(examples),
            answer_tokens=float((examples.target.lengths - 1).mean()),
            data=digest,
            settings=flat_settings(trial.config),
            environment=run.environment,
            machine={"processor": processor(), "processors": processors()},
        )
        text = json.dumps(line, allow_nan=False, ensure_ascii=False)
        write_atomically(folder / RESULT, text.encode())
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return line


def _stop_if(path: Path | None, event: Event) -> None:
    """Stop training once a file exists: no executor can end a running call itself."""
    if path is None or not isinstance(event, Stepped | Saved) or not path.exists():
        return
    if isinstance(event, Saved):
        raise _StopError
    if threading.current_thread() is threading.main_thread():
        signal.raise_signal(signal.SIGTERM)  # which the trainer handles: it saves and ends


def learning_curve(run: Path) -> dict[str, list[float]]:
    """Read the losses of a run from its metrics.jsonl; return lists by name.

    epoch: the epochs after which the training loss is recorded. train: nats per answer, as in
    article 003; train_token: nats per token. valid: nats per token at each validation that has a
    loss; valid_epoch: its epoch.
    """
    events = read_metrics(run)
    epochs = [event for event in events if event["event"] == "epoch_ended"]
    valid = [e for e in events if e["event"] == "validated" and e["loss"] is not None]
    return {
        "epoch": [event["epoch"] for event in epochs],
        "train": [event["loss_per_sentence"] for event in epochs],
        "train_token": [event["loss"] for event in epochs],
        "valid_epoch": [event["epoch"] for event in valid],
        "valid": [event["loss"] for event in valid],
    }


# probes -------------------------------------------------------------------------------------------


def _probe_if(model: Seq2Seq, batch: Batch, plan: Plan, path: Path, event: Event) -> None:
    """Probe the model if an event is due, and append the numbers to a file.

    Probes are due after the steps `plan.probe_steps` and at the end of training. A probe is a line
    of JSON.
    """
    if isinstance(event, Ended) or (
        isinstance(event, Started | Stepped) and event.step in plan.probe_steps
    ):
        seen = probe(model, batch, plan.measures)
        with saving(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": event.step, "epoch": event.epoch, **seen}) + "\n")


def probe(model: Seq2Seq, batch: Batch, measures: Sequence[str]) -> dict[str, Any]:
    """Record measures of one forward and backward pass; return the numbers by name.

    Afterwards the model has no gradients and is in the same mode as before.
    """
    training, recorder = model.training, Recorder()
    model.eval()
    model.zero_grad()
    with recorder:
        loss, backward = model.loss(batch)
    backward(1.0 / max(loss.tokens, 1))
    seen = Pass(model, batch, recorder.maps)
    found: dict[str, Any] = {}
    for name in measures:
        if (record := MEASURES[name].record) is not None:
            found |= record(seen)
    model.zero_grad()
    model.train(training)
    return found


def read_probes(path: Path) -> list[dict[str, Any]]:
    """Read the probes from a file, by step; the last line of a step counts.

    A resumed run may have probed a step twice. A line that a killed process left incomplete is
    skipped.
    """
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    found: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            one = json.loads(line)
            found[one["step"]] = one
        except (ValueError, TypeError, KeyError):
            continue
    return [found[step] for step in sorted(found)]
