"""Checkpoints: a folder each, written whole or not at all, and checked byte by byte when read.

checkpoints/step-00000500/
    model.safetensors      weights, torch's names
    ema.safetensors        the moving average of the weights, if the run keeps one
    optimizer.safetensors  STATE.NAME for the optimizer's states (exp_avg.NAME …), step.NAME
    state.json             the state of training, and its environment (versions, threads)
    config.toml            the settings it was made with
    SHA256SUMS             as `sha256sum --check SHA256SUMS` reads it
"""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from pellucid.core.errors import UsageError, UserError
from pellucid.core.files import SUMS, changed_file, checksums, read_file, write_folder_atomically
from pellucid.core.weights import from_safetensors, to_safetensors
from pellucid.training.state import SavedState, read_state

Array = np.ndarray
FORMAT = 1
WEIGHTS, OPTIMIZER, STATE, SETTINGS = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "config.toml",
)
AVERAGE = "ema.safetensors"
_NAME = re.compile(r"step-(\d{8,})")


class CheckpointError(UserError):
    """A checkpoint that is damaged, incomplete, or not one of ours."""


@dataclass(frozen=True)
class Checkpoint:
    """All that resuming needs."""

    weights: Mapping[str, Array]
    optimizer: Mapping[str, Array]
    state: SavedState
    settings: Mapping[str, Any]
    average: Mapping[str, Array] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """The steps that were taken."""
        return self.state.trainer.step


def checkpoint_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder / f"step-{step:08d}"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into `folder` whole or not at all; return its path.

    Raises `UserError` when it cannot be written; earlier checkpoints stay as they are.
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
    """Read a checkpoint and check every byte of it.

    Raises `CheckpointError` naming the file that is missing, damaged or not ours.
    """
    files = _whole_files(path)
    try:
        values = json.loads(files[STATE])
        settings = tomllib.loads(files[SETTINGS].decode())
        made_by, step = values.pop("format"), values.pop("step")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path / STATE}: not a Pellucid checkpoint ({error})") from None
    if made_by != FORMAT:
        raise CheckpointError(
            f"{path}: checkpoint format {made_by}, this Pellucid reads {FORMAT}; "
            "read it with the version that wrote it"
        )
    try:
        state = read_state(values, str(path / STATE))
    except UsageError as error:  # the error is in the file, not in the command
        raise CheckpointError(str(error)) from None
    if not step == state.trainer.step == step_of(path):
        raise CheckpointError(
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
    """Return the checkpoints in a folder, oldest first."""
    found = [p for p in folder.glob("step-*") if _NAME.fullmatch(p.name)]
    return sorted(found, key=step_of)


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's name.

    >>> step_of(Path("checkpoints/step-00000500"))
    500
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path}: not a checkpoint; its name should be step-<number>")
    return int(match[1])


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint, or None when there is none.

    A damaged newest one is an error, not skipped.

    Raises `CheckpointError` that also names the newest undamaged checkpoint.
    """
    paths = checkpoint_paths(folder)
    if not paths:
        return None
    try:
        return read_checkpoint(paths[-1])
    except CheckpointError as error:
        for older in reversed(paths[:-1]):
            try:
                read_checkpoint(older)
            except CheckpointError:
                continue
            damaged = ", ".join(str(p) for p in paths if step_of(p) > step_of(older))
            raise CheckpointError(
                f"{error}. {older} is undamaged: delete {damaged} to resume from it"
            ) from None
        raise CheckpointError(
            f"{error}. There is no older undamaged checkpoint: start a new run"
        ) from None


def keep_checkpoints(folder: Path, steps: Iterable[int]) -> None:
    """Delete every checkpoint but those of `steps`."""
    kept = set(steps)
    for path in checkpoint_paths(folder):
        if step_of(path) not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _whole_files(path: Path) -> dict[str, bytes]:
    try:
        sums = read_file(path / SUMS)
    except UserError:
        raise CheckpointError(f"{path}: not a whole Pellucid checkpoint (no {SUMS})") from None
    averaged = [AVERAGE] if AVERAGE.encode() in sums else []
    try:
        names = (WEIGHTS, OPTIMIZER, STATE, SETTINGS, *averaged)
        files = {name: read_file(path / name) for name in names}
    except UserError as error:
        raise CheckpointError(str(error)) from None
    try:
        changed = changed_file(files, sums)
    except ValueError:
        raise CheckpointError(f"{path}: not a whole Pellucid checkpoint (no {SUMS})") from None
    if changed is not None:
        raise CheckpointError(
            f"{path / changed}: damaged ({len(files[changed])} bytes; its checksum is not the one "
            f"in {SUMS})"
        )
    return files
