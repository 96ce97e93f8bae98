"""A run is a folder with everything that is needed to resume it.

It holds config.toml (the resolved settings), remembered.toml, metrics.jsonl, checkpoints/, model/
and the tokenizers. A run that began with a model also holds a copy of it, start/; if that model is
of Hugging Face's, the tokenizers are only there.

Opening the folder takes its lock. Resuming finds the newest checkpoint and compares the settings
with those it was made with. Only after all checks are config.toml written and metrics.jsonl
truncated to the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import tomli_w

from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.settings import changes, flat, from_mapping, to_mapping
from pellucid.kernels.backend.machine import environment
from pellucid.kernels.device import CPU
from pellucid.models.quantize import WeightFormat
from pellucid.system.command import command
from pellucid.system.files import (
    TEMPORARY,
    read_file,
    read_toml,
    remove_temporary,
    saving,
    write_atomically,
)
from pellucid.system.language import plural
from pellucid.tasks import TASKS
from pellucid.tasks.folder import REMEMBERED
from pellucid.training import checkpoint
from pellucid.training.config import RunConfig
from pellucid.training.events import RECORDED, Event, as_record
from pellucid.training.lock import Lock

logger = logging.getLogger(__name__)

CONFIG, METRICS, CHECKPOINTS, MODEL = "config.toml", "metrics.jsonl", "checkpoints", "model"
START = "start"  # a setting, and the folder of the model that it names
LOCK = ".lock"


@dataclass(frozen=True)
class Remembered:
    """Facts that a run keeps in addition to its settings."""

    held_out: str = ""
    """Digest of the held-out data for the final scores."""
    weights: WeightFormat = "float32"
    """Storage format of the weights in the model folder."""
    imports: tuple[str, ...] = ()
    """Names of the user's files and modules that were imported; their code is not kept."""

    @classmethod
    def of(cls, run: Path) -> Remembered:
        """Read the remembered.toml of a run folder; defaults for older runs, which have none.

        Raises `UserError` if the file is damaged.
        """
        path = run / REMEMBERED
        with raised_as(UserError, UsageError):  # the error is in the file, not in the command
            return from_mapping(cls, read_toml(path) if path.exists() else {}, str(path))

    def file(self) -> dict[str, bytes]:
        """Return {"remembered.toml": its content}."""
        return {REMEMBERED: tomli_w.dumps(to_mapping(self)).encode()}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List the differences of two sets of settings.

    A setting that is missing in `before` is newer, and had its default value.
    """
    new, old = flat(now), flat(before)
    first = next(iter(TASKS))  # the type of a model without one
    kind = TASKS[new.get("model.model_type", first)].config_class
    defaults = to_mapping(RunConfig()) | {"model": {**to_mapping(kind()), "model_type": first}}
    usual = {name: value for name, value in flat(defaults).items() if name in new}
    return changes(usual | old, new, "unset")


class MetricsFile:
    """A listener that appends each recorded event to a file as a line of JSON."""

    def __init__(self, path: Path, kept: bytes) -> None:
        """Open `path` for appending.

        Truncate it to the lines `kept`, with which it begins.
        """
        self.path, self.lines, self.sha256 = path, kept.count(b"\n"), hashlib.sha256(kept)
        with saving(path):
            self._file = path.open("ab")
            self._file.truncate(len(kept))

    def __call__(self, event: Event) -> None:
        """Append an event if it is one of `RECORDED`."""
        if isinstance(event, RECORDED):
            text = json.dumps(as_record(event), allow_nan=False, ensure_ascii=False)
            line = text.encode() + b"\n"
            with saving(self.path, "the checkpoints are whole"):
                self._file.write(line)
                self._file.flush()
            self.lines += 1
            self.sha256.update(line)

    def flush(self) -> None:
        """Wait until all lines are on the disk."""
        with saving(self.path, "the checkpoints are whole"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        # Every line was flushed when it was written; what is left is one that could not be.
        with suppress(OSError):
            self._file.close()


class RunFolder:
    """The folder of one run, locked by this process; a context manager.

    path: created if it does not exist. settings: those of the run (`RunConfig.as_mapping`), as TOML
    values. resume: continue from the newest checkpoint, or from the start if there is none.
    accept_changes: resume although settings or metrics.jsonl differ; the run can then no longer be
    repeated from its config.toml.
    further: contents of further files next to config.toml, by name.
    scoring: everything that held-out scores depend on besides the weights, by name.
    device: properties of the device that results depend on, by name.

    A run that was stopped before it saved anything may also be started again, with other settings.

    Raises `UserError` if the folder is in use or cannot be written; without `resume`, if it holds a
    run or anything that a new run would overwrite; with `resume`, if it holds no run, if its newest
    checkpoint is damaged, if metrics.jsonl has lost lines or, without `accept_changes`, if that
    file was changed or the settings are others, which are listed. Raises `UsageError` for a name,
    of the folder or in the settings, that is not UTF-8.
    """

    metrics: MetricsFile
    """Records events once `begin` was called."""

    def __init__(
        self,
        path: Path,
        settings: Mapping[str, Any],
        *,
        resume: bool = False,
        accept_changes: bool = False,
        further: Mapping[str, bytes] | None = None,
        scoring: Mapping[str, Any] | None = None,
        device: Mapping[str, str] | None = None,
    ) -> None:
        _check_utf8(path, settings)
        self.path = path
        self.checkpoints = path / CHECKPOINTS
        self.settings = tomllib.loads(tomli_w.dumps(settings))
        self.further = dict(further or {})
        self.environment = {**environment(), **(device or {})}
        self.checkpoint: checkpoint.Checkpoint | None = None
        self.changed = False
        self.rescored: set[str] = set()
        """Settings changed since the checkpoint, so that held-out scores are not comparable."""
        self.scored_since = 0
        self._scoring = {key: str(value) for key, value in flat(scoring or {}).items()}
        self._begun, self._kept = False, b""
        if not (path / LOCK).exists():  # else the process that holds it is named first
            self._check(resume)
        with saving(path, "nothing was changed"):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(path / LOCK)
        try:
            self._check(resume)
            if resume:
                self._resume(accept_changes)
        except BaseException:
            self._lock.release()
            raise

    def begin(self) -> None:
        """Write the settings and the `further` files, and open metrics.jsonl.

        Also removes what interrupted writes have left. A second call does nothing. Before the
        first, nothing in the folder but its lock is written. Raises `UserError` if it cannot write.
        """
        if self._begun:
            return
        with saving(self.path):
            if _holds_run(self.path):  # then what was left half written is the run's own
                remove_temporary(self.path, CONFIG, MODEL, START, *self.further)
                remove_temporary(self.checkpoints, "step-*")
            self.checkpoints.mkdir(exist_ok=True)
        # The settings come first: they mark the folder as a run.
        write_atomically(self.path / CONFIG, tomli_w.dumps(self.settings).encode())
        for name, content in self.further.items():
            write_atomically(self.path / name, content)
        self.metrics = MetricsFile(self.path / METRICS, self._kept)
        self._begun = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files and release the lock."""
        if self._begun:
            self.metrics.close()
        self._lock.release()

    @property
    def resume_command(self) -> str:
        """The command that resumes this run."""
        return command("train", self.path, resume=True)

    def save(
        self,
        trainer: checkpoint.TrainerState,
        weights: Mapping[str, np.ndarray],
        optimizer: Mapping[str, np.ndarray],
        keep: Iterable[int],
        average: Mapping[str, np.ndarray],
    ) -> Path:
        """Write a checkpoint, then delete all others whose steps are not in `keep`.

        Return its path. `begin` must have been called. average: the moving average of the weights,
        or empty. Raises `UserError` if the checkpoint cannot be written; earlier ones are then
        kept.
        """
        self.metrics.flush()
        metrics = self.metrics
        state = checkpoint.SavedState(
            trainer,
            metrics.lines,
            self.environment,
            self._scoring,
            metrics.sha256.hexdigest(),
            self.scored_since,
        )
        written = checkpoint.Checkpoint(weights, optimizer, state, self.settings, average)
        path = checkpoint.write_checkpoint(self.checkpoints, written)
        checkpoint.keep_checkpoints(self.checkpoints, {trainer.step, *keep})
        return path

    def _resume(self, accept_changes: bool) -> None:
        """Load the newest checkpoint.

        Compare its settings, metrics and environment with the present.
        """
        self.checkpoint = checkpoint.newest_checkpoint(self.checkpoints)
        before = read_settings(self.path) if self.checkpoint is None else self.checkpoint.settings
        if before is not None and (found := _changes(before, self.settings)):
            if not accept_changes:
                raise _other_settings(
                    self.path,
                    found,
                    "accept them (to train longer, for example) with `accept_changes`, ",
                )
            self.changed = True
            listed = "\n  ".join(found)
            logger.warning("%s is resumed with other settings:\n  %s", self.path, listed)
        if self.checkpoint is None:
            return
        state = self.checkpoint.state
        scoring = self._scoring | state.judged_by
        self.rescored = {key for key, now in self._scoring.items() if scoring[key] != now}
        self.scored_since = state.scored_since
        path = self.path / METRICS
        lines = (read_file(path) if path.exists() else b"").split(b"\n")
        if len(lines) <= (count := state.metrics_lines):
            raise UserError(
                f"{path}: has fewer than the {count} {plural(count, 'line')} it had when the "
                "checkpoint was written; put the file back, or start a new run"
            )
        self._kept = b"".join(line + b"\n" for line in lines[:count])
        if state.metrics_sha256 not in (None, hashlib.sha256(self._kept).hexdigest()):
            changed = f"{path}: was changed after the checkpoint was written"
            if not accept_changes:
                raise UserError(f"{changed}; put the file back, or give `accept_changes`")
            logger.warning(changed)
        usual = {"device": CPU, "precision": "float32"}  # which `device` leaves out
        if moved := changes(usual | state.environment, usual | self.environment):
            logger.warning(
                f"the environment changed since the checkpoint was written ({'; '.join(moved)}): "
                "results will no longer be the same bit for bit"
            )

    def _check(self, resume: bool) -> None:
        """Raise `UserError` for a folder that cannot be resumed, or would be overwritten.

        A run that has saved nothing may be replaced by a new one.
        """
        path = self.path
        if path.exists() and not path.is_dir():
            raise UserError(f"{path}: is a file; a run needs a folder")
        for name in (CHECKPOINTS, MODEL) if resume else ():
            if (path / name).is_file():
                raise UserError(f"{path / name}: is a file; a run needs a folder there")
        begun = (path / LOCK).exists()
        saved = [name for name in (CHECKPOINTS, MODEL) if _holds_any(path / name)]
        own = [METRICS, *self.further, *([START] if START in self.settings else [])]
        if _holds_run(path):
            if not resume and (saved or not (begun and self.checkpoints.is_dir())):
                raise UserError(
                    f"{path}: already holds a run; resume it ({self.resume_command}), or "
                    "choose another folder"
                )
        elif resume and not begun:
            raise UserError(
                f"{path}: there is no run here to resume (no config.toml, no checkpoints)"
            )
        elif held := [*saved, *(name for name in own if (path / name).exists())]:
            raise UserError(
                f"{path}: already holds {', '.join(held)}, which a run would overwrite; move it "
                "away, or choose another folder"
            )


def read_settings(path: Path) -> dict[str, Any] | None:
    """Read config.toml of a run folder or a checkpoint; None if there is none.

    Raises `UserError` if it is damaged.
    """
    with raised_as(UserError, UsageError):  # the error is in the file, not in the command
        return read_toml(path / CONFIG) if (path / CONFIG).exists() else None


def check_resumed(path: Path, settings: Mapping[str, Any]) -> bool:
    """Compare settings with those of a run's newest checkpoint; return whether there is one.

    path: the run folder. This is done before a model is built, so only the settings given are
    compared, and only those that the checkpoint has; `RunFolder` later compares all. Raises
    `UserError` that lists the differences.
    """
    made = checkpoint.checkpoint_paths(path / CHECKPOINTS)
    if not made or (made_with := read_settings(made[-1])) is None:
        return False
    before, now = flat(made_with), flat(settings)
    given = {key: before[key] for key in now if key in before}
    if found := _changes(given, settings):
        raise _other_settings(path, found)
    return True


def _other_settings(path: Path, found: Sequence[str], remedy: str = "") -> UserError:
    """Return an error that lists settings that differ; remedy: another way out, with ", "."""
    listed = "\n  ".join(found)
    return UserError(
        f"{path}: these settings are not those of the run:\n  {listed}\n"
        f"Restore them, {remedy}or start a new run in another folder"
    )


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Read the records in a run's metrics.jsonl.

    An empty list if there is no such file. An incomplete last line is left out. Raises `UserError`
    naming a damaged line, or a file that cannot be read.
    """
    path, records = run / METRICS, list[dict[str, Any]]()
    lines = read_file(path).split(b"\n") if path.exists() else []
    try:
        for line in lines[:-1]:
            records.append(json.loads(line))
    except ValueError as error:
        raise UserError(f"{path}, line {len(records) + 1}: not valid JSON: {error}") from None
    return records


def _check_utf8(path: Path, settings: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a name that a run's files, which are UTF-8, cannot hold."""
    names = {"run": [str(path), path.resolve().name], **flat(settings)}
    for name, value in names.items():
        for text in value if isinstance(value, list) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise UsageError(
                    f"{name}: {text!r} is not UTF-8, which a run's files are written in; rename it"
                ) from None


def _holds_run(path: Path) -> bool:
    """Return whether a folder holds the settings or a checkpoint of a run."""
    return (path / CONFIG).exists() or bool(checkpoint.checkpoint_paths(path / CHECKPOINTS))


def _holds_any(path: Path) -> bool:
    """Return whether a path is a file, or a folder with files of a finished write."""
    if not path.is_dir():
        return path.exists()
    return any(not entry.name.startswith(TEMPORARY) for entry in path.iterdir())
