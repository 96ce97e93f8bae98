"""One run of a study, in whatever process it lands: trains, measures, returns a line of results.

The folder it works in is a run folder like any other (`pellucid train`'s), so it goes on from its
newest checkpoint. `result.json`, written last, says that it is done.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from pellucid import __version__
from pellucid.core.batch import Batch
from pellucid.core.errors import UserError
from pellucid.core.files import SavingError, write_atomically
from pellucid.core.machine import processor, processors
from pellucid.core.settings import to_mapping
from pellucid.data.batches import Examples, held_out_batches
from pellucid.data.pairs import Pairs
from pellucid.data.tokenizers import normaliser
from pellucid.evaluation.bleu import check_installed
from pellucid.lab.metrics import measure
from pellucid.lab.probe import Prober, read_probes
from pellucid.lab.results import FORMAT, LineError, parse_line
from pellucid.lab.study import Trial, flat_settings
from pellucid.lab.tokens import file_tokenizers
from pellucid.pipelines import Seq2SeqPipeline
from pellucid.training.config import RunConfig
from pellucid.training.events import Event, Saved
from pellucid.training.experiment import (
    batches_of,
    encode,
    make_tokenizers,
    read_data,
    score,
    untrained,
)
from pellucid.training.lock import InUseError, Lock
from pellucid.training.run import CHECKPOINTS, LOCK, METRICS, RunFolder
from pellucid.training.trainer import Trainer

logger = logging.getLogger(__name__)

RESULT, PROBES, DATA = "result.json", "probes.jsonl", "data.sha256"
PROBED_PAIRS = 64


class _StopError(Exception):
    """The study was asked to stop, and a checkpoint has just been written."""


def run_trial(trial: Trial, folder: Path, stop: Path | None = None) -> dict[str, Any]:
    """Do a run, or go on with it, and return its line for the results file.

    stop: a file that, once it is there, ends the run at its next checkpoint.

    `status` is "done" or "failed" (with the fault in words). Otherwise nothing was found out about
    the run, what was learnt is saved, and the line is not for the file: "interrupted" (a signal, or
    `stop`), "in use" (another process has the folder) or "not saved" (a full disk), which say why
    in `error`. Nothing but an interrupt is raised: one run's fault must not end the others.
    """
    began = time.monotonic()
    try:
        if (line := _finished(trial, folder)) is not None:
            return line
        if stop is not None and stop.exists():
            raise _StopError
        with threadpool_limits(1), np.errstate(over="ignore", invalid="ignore"):
            return _train(trial, folder, stop)
    except _StopError:
        return _interrupted(trial)
    except InUseError as error:
        return {**_head(trial), "status": "in use", "error": str(error)}
    except SavingError as error:
        return {**_head(trial), "status": "not saved", "error": str(error)}
    except Exception as error:
        said = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        return failure(trial, said, (time.monotonic() - began) / 60)


def _finished(trial: Trial, folder: Path) -> dict[str, Any] | None:
    """Return the result of a run that was done; one that cannot be believed is as good as none."""
    path = folder / RESULT
    try:
        line = parse_line(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except LineError as error:
        wrong = error.what
    else:
        if (line["status"], line["id"]) != ("done", trial.id):
            wrong = f"is not the result of run {trial.id}"
        elif "data" in line and line["data"] != (now := data_digest(read_pairs(trial.config))):
            wrong = f"is of {other_data(line['data'], now)}"
        else:
            return line
    logger.warning("%s: %s; the run is done again", path, wrong)
    return None


def _interrupted(trial: Trial) -> dict[str, Any]:
    return {**_head(trial), "status": "interrupted", "error": "it was stopped, and has saved"}


def failure(trial: Trial, error: str, minutes: float) -> dict[str, Any]:
    """Return the line of a run that failed."""
    return {**_head(trial), "status": "failed", "error": error, "minutes": minutes}


def _head(trial: Trial) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "study": trial.study,
        "change": trial.change,
        "seed": trial.seed,
        "id": trial.id,
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def data_digest(pairs: Pairs) -> str:
    """Return the SHA-256 of all pairs as read: those learnt from, validated on, and put aside.

    >>> from pellucid.data.pairs import Pair
    >>> data_digest(Pairs((Pair("1", ("one",)),)))[:12]
    'f70a20b6c9d0'
    """
    digest = hashlib.sha256()
    for side in (pairs.train, pairs.valid, pairs.test):
        digest.update(json.dumps([[pair.source, *pair.targets] for pair in side]).encode())
    return digest.hexdigest()


def other_data(before: str, now: str) -> str:
    """Say that two digests are of different data."""
    return f"other data (SHA-256 of its pairs {before[:12]}…, now {now[:12]}…)"


def read_pairs(config: RunConfig) -> Pairs:
    """Return what a run with these settings learns from and is judged by, on whichever side."""
    return read_data(config.data, normaliser(config.tokenizer.normalise))


def _check_data(run: RunFolder, digest: str) -> None:
    """Refuse to go on with other data than a run began with; one without a checkpoint begins."""
    path = run.path / DATA
    if run.checkpoint is None or not path.exists():
        write_atomically(path, digest.encode())
    elif (before := path.read_text(encoding="utf-8")) != digest:
        raise UserError(
            f"{run.path}: this run began with {other_data(before, digest)}; put the data back, or "
            "delete the folder to begin again, and retry"
        )


def _train(trial: Trial, folder: Path, stop: Path | None) -> dict[str, Any]:
    begun = (folder / LOCK).exists()
    if begun:
        Lock(folder / LOCK).release()  # a folder in use is refused before anything is read
    config = trial.config
    if config.evaluation.metric == "bleu":
        check_installed()  # now, rather than after the training
    pairs = read_pairs(config)
    if trial.tokenizer:
        tokenizers = file_tokenizers(trial.tokenizer, trial.frame_source)
    else:
        tokenizers = make_tokenizers(config.tokenizer, pairs)
    trained = untrained(config, tokenizers)
    assert isinstance(trained, Seq2SeqPipeline)  # check_study lets nothing else through
    model = trained.model
    config = replace(config, model=model.config)
    examples = encode(trained, pairs.train, config, pairs.first_target_only)
    held_out = encode(trained, pairs.valid, config, True) if pairs.valid else None
    digest = data_digest(pairs)

    def stop_when_asked(event: Event) -> None:
        if isinstance(event, Saved) and stop is not None and stop.exists():
            raise _StopError

    with RunFolder(folder, to_mapping(config), resume=begun) as run:
        _check_data(run, digest)
        prober = Prober(model, _probed(examples), trial.probe_steps, folder / PROBES)
        trainer = Trainer(
            model,
            batches_of(examples, config),
            config.training,
            validation=held_out_batches(held_out, config.data.batch_tokens) if held_out else (),
            run=run,
            listeners=[prober, stop_when_asked],
        )
        ended = trainer.fit()
        if ended.interrupted is not None:
            return _interrupted(trial)
        judged = pairs.test or pairs.valid
        scores = _numbers(score(trained, judged, config).as_json()) if judged else {}
        if pairs.test:  # the loss of validation pairs has its names already
            scores["test_loss"] = scores["loss"]
        minutes = trainer.seconds / 60
        curve = learning_curve(folder / METRICS)
        probes = read_probes(folder / PROBES)
        line = {
            **_head(trial),
            "status": "done",
            "metrics": measure(curve, scores, probes),
            "curve": curve,
            "probes": probes,
            "steps": ended.step,
            "minutes": minutes,
            "parameters": sum(p.data.size for p in model.parameters()),
            "vocabulary": [trained.source.vocab_size, trained.target.vocab_size],
            "pairs": len(examples),
            "answer_tokens": float((examples.target.lengths - 1).mean()),
            "data": digest,
            "settings": flat_settings(trial.config),
            "environment": {**run.environment, "pellucid": __version__},
            "machine": machine(),
        }
        text = json.dumps(line, allow_nan=False, ensure_ascii=False)
        write_atomically(folder / RESULT, text.encode())
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return line


def _probed(examples: Examples) -> Batch:
    """Return the batch that is looked at: pairs from all over the data, always the same."""
    some = np.linspace(0, len(examples) - 1, min(PROBED_PAIRS, len(examples)))
    return examples.batch(some.astype(np.int64))


def learning_curve(metrics: Path) -> dict[str, list[float | None]]:
    """Return the losses after each epoch from a run's metrics.jsonl.

    train: nats per answer as seed 003 defines it; train_token: the same per token; valid: nats per
    token at the validation that followed, None where there was none.
    """
    curve: dict[str, list[float | None]] = {"epoch": [], "train": [], "train_token": []}
    valid: dict[float, float] = {}
    for line in metrics.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["event"] == "epoch_ended":
            curve["epoch"].append(event["epoch"])
            curve["train"].append(event["loss_per_sentence"])
            curve["train_token"].append(event["loss"])
        elif event["event"] == "validated" and event["loss"] is not None:
            valid[event["epoch"]] = event["loss"]
    curve["valid"] = [valid.get(epoch or 0.0) for epoch in curve["epoch"]] if valid else []
    return curve


def _numbers(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the scores that are one number, BLEU's and chrF's values among them."""
    found = {}
    for name, value in scores.items():
        number = value.get("value") if isinstance(value, Mapping) else value
        if isinstance(number, int | float):
            found[name] = float(number)
    return found


def machine() -> dict[str, Any]:
    """Return the processor's name and the number of processors this process may use."""
    return {"processor": processor(), "processors": processors()}
