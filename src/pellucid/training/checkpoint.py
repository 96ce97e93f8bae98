"""Checkpoints: each a folder, written completely or not at all, verified when read.

checkpoints/step-00000500/
    model.safetensors      weights, torch's names
    ema.safetensors        the moving average of the weights, if the run keeps one
    optimizer.safetensors  STATE.NAME for the optimizer's states (exp_avg.NAME …), step.NAME
    state.json             the state of training, and its environment (versions, threads)
    config.toml            the settings it was made with
    SHA256SUMS             as `sha256sum --check SHA256SUMS` reads it
"""

import json
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.settings import check_ranges, flat, from_mapping
from pellucid.optim.step import Tally
from pellucid.system.files import SUMS, changed_file, checksums, read_file, write_folder_atomically
from pellucid.system.weights import from_safetensors, to_safetensors

Array = np.ndarray
FORMAT = 1
WEIGHTS, OPTIMIZER, AVERAGE = "model.safetensors", "optimizer.safetensors", "ema.safetensors"
STATE, SETTINGS = "state.json", "config.toml"
_NAME = re.compile(r"step-(\d{8,})")


@dataclass
class TrainerState:
    """The complete state of the training loop, except weights and optimizer.

    `batch` is the index of the next batch in `epoch`, which counts from 0.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    seconds: float = 0.0
    useful_tokens: int = 0
    first_loss: float | None = None
    running_loss: float | None = None
    window: Tally = field(default_factory=Tally)
    """Sums since the last record of the training loss."""
    pass_: Tally = field(default_factory=Tally)
    """Sums since the beginning of the epoch."""
    best_score: float | None = None
    best_step: int | None = None
    not_improved: int = 0
    """Number of successive validations without a new best score."""
    checkpoints: tuple[int, ...] = ()
    """Steps of the regular checkpoints that are kept, oldest first."""
    stopped: str | None = None
    """The reason for the end of training; None while it goes on."""


@dataclass(frozen=True)
class SavedState:
    """The content of state.json, except the format and the step."""

    trainer: TrainerState
    metrics_lines: int
    environment: dict[str, str]
    judged_by: dict[str, str] = field(default_factory=dict)
    """Settings and data that held-out scores depend on, in addition to the weights."""
    metrics_sha256: str | None = None
    """SHA-256 of the lines in metrics.jsonl; version 0.1.0 wrote none."""
    scored_since: int = 0
    """Held-out scores after this step are comparable with present ones: settings and data are
    equal."""


def _read_state(values: Mapping[str, Any], source: str) -> SavedState:
    """Parse the content of state.json; `source` names the file in errors.

    Raises `UsageError` for a missing or unknown key, and for a value of a wrong type or range.
    """
    saved = from_mapping(SavedState, values, source)
    state, tallies = saved.trainer, (saved.trainer.window, saved.trainer.pass_)
    if absent := flat({"trainer": asdict(state)}).keys() - flat(values).keys():
        raise UsageError(f"{source}: {min(absent)} is missing")
    until_now, count = f"[0, {state.step}]", state.pass_.steps
    finite = dict.fromkeys(("first_loss", "running_loss", "best_score"), "(-inf, inf)")
    counts = {f.name: "[0, inf)" for f in fields(Tally)} | {"nats": "(-inf, inf)"}
    with raised_as(UsageError, UsageError, where=source):
        check_ranges(saved, metrics_lines="[0, 1e15)", scored_since=until_now)
        check_ranges(state, seconds="[0, inf)", useful_tokens="[0, inf)")
        check_ranges(state, epoch=until_now, not_improved=until_now, best_step=until_now, **finite)
        check_ranges(state, batch=f"[{count}, {count}]")
        for tally in tallies:
            check_ranges(tally, **counts)
    if not all(0 < step <= state.step for step in state.checkpoints):
        raise UsageError(f"{source}: checkpoints must be steps from 1 to {state.step}")
    return saved


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to resume a run, except its data."""

    weights: Mapping[str, Array]
    optimizer: Mapping[str, Array]
    state: SavedState
    settings: Mapping[str, Any]
    average: Mapping[str, Array] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return self.state.trainer.step


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into `folder`, completely or not at all; return its path.

    It replaces an older one of the same step. Raises `UserError` if it cannot be written; earlier
    checkpoints are unchanged.
    """
    state = {"format": FORMAT, "step": checkpoint.step, **asdict(checkpoint.state)}
    files = {
        WEIGHTS: to_safetensors(checkpoint.weights),
        OPTIMIZER: to_safetensors(checkpoint.optimizer),
        STATE: json.dumps(state, indent=1, allow_nan=False).encode(),
        SETTINGS: tomli_w.dumps(checkpoint.settings).encode(),
        **({AVERAGE: to_safetensors(checkpoint.average)} if checkpoint.average else {}),
    }
    path = checkpoint_path(folder, checkpoint.step)
    write_folder_atomically(path, {**files, SUMS: checksums(files)})
    return path


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksums.

    Raises `UserError` naming a file that is missing or damaged, and for a folder that is no
    checkpoint of this format, or was renamed.
    """
    files = _whole_files(path)
    kinds = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
    with raised_as(UserError, *kinds, where=f"{path / STATE}: not a Pellucid checkpoint"):
        values = json.loads(files[STATE])
        settings = tomllib.loads(files[SETTINGS].decode())
        made_by, step = values.pop("format"), values.pop("step")
    if made_by != FORMAT:
        raise UserError(
            f"{path}: checkpoint format {made_by}, this Pellucid reads {FORMAT}; "
            "read it with the version that wrote it"
        )
    state = _read_state(values, str(path / STATE))
    if not step == state.trainer.step == step_of(path):
        raise UserError(
            f"{path / STATE}: step is {step!r} and trainer.step {state.trainer.step}; expected the "
            "step in the folder's name"
        )
    return Checkpoint(
        from_safetensors(files[WEIGHTS], path / WEIGHTS),
        from_safetensors(files[OPTIMIZER], path / OPTIMIZER),
        state,
        settings,
        from_safetensors(files[AVERAGE], path / AVERAGE) if AVERAGE in files else {},
    )


def checkpoint_paths(folder: Path) -> list[Path]:
    """Return the paths of all checkpoints in a folder, oldest first."""
    found = [p for p in folder.glob("step-*") if _NAME.fullmatch(p.name)]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint.

    Raises `UserError` for another name.

    >>> step_of(Path("checkpoints/step-00000500"))
    500
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise UserError(f"{path}: not a checkpoint; its name should be step-<number>")
    return int(match[1])


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Read the newest checkpoint of a folder; None if there is none.

    A damaged newest checkpoint is an error, and not skipped: `UserError`, which also names the
    newest undamaged one, if there is one.
    """
    paths = checkpoint_paths(folder)
    if not paths:
        return None
    try:
        return read_checkpoint(paths[-1])
    except UserError as error:
        for older in reversed(paths[:-1]):
            try:
                read_checkpoint(older)
            except UserError:
                continue
            damaged = ", ".join(str(p) for p in paths if step_of(p) > step_of(older))
            raise UserError(
                f"{error}. {older} is undamaged: delete {damaged} to resume from it"
            ) from None
        raise UserError(
            f"{error}. There is no older undamaged checkpoint: start a new run"
        ) from None


def keep_checkpoints(folder: Path, steps: Iterable[int]) -> None:
    """Delete all checkpoints except those of `steps`; one that cannot be deleted stays."""
    kept = set(steps)
    for path in checkpoint_paths(folder):
        if step_of(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _whole_files(path: Path) -> dict[str, bytes]:
    """Read the files of a checkpoint. Raises `UserError` for missing or damaged files."""
    if not (path / SUMS).is_file():
        raise UserError(f"{path}: not a whole Pellucid checkpoint (no {SUMS})")
    averaged = [AVERAGE] if AVERAGE.encode() in read_file(path / SUMS) else []
    names = (WEIGHTS, OPTIMIZER, STATE, SETTINGS, *averaged)
    files = {name: read_file(path / name) for name in names}
    if (changed := changed_file(path, files)) is not None:
        raise UserError(
            f"{path / changed}: damaged ({len(files[changed])} bytes; its checksum is not the one "
            f"in {SUMS})"
        )
    return files
