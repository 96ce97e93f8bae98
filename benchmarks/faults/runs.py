"""Resume runs with one damaged file, or with an edited state and new checksums."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults import children, models
from benchmarks.faults.mode import Case
from benchmarks.faults.training import RUN, contents, difference, write

Draw = np.random.Generator
Damage = Callable[[Path, Draw], bool]
"""Function that damages a run; it returns whether the result may have other bits."""
STEPS = 6
JUNK: list[Any] = [
    None, True, -1, 0, 7, 10**9, 10**30, -5, 0.5, 1e300, float("nan"), "7", "x" * 999, [], [3],
    [-1], {}, {"step": 1},
]  # fmt: skip


def files(run: Path) -> list[str]:
    """Return the names of a run's files, those of checkpoints included."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())


def damaged_file(run: Path, draw: Draw) -> bool:
    """Damage one file: a bit, its end, a block, or another thing in its place."""
    damages = (models.flipped_bit, models.truncated, models.zeroed, models.replaced)
    damages[draw.integers(len(damages))](run, draw, files(run))
    return False


def edited_state(run: Path, draw: Draw) -> bool:
    """Change or delete one key of the newest state.json; write new checksums."""
    newest = max((run / "checkpoints").iterdir())
    values = json.loads((newest / "state.json").read_bytes())
    table = values
    while True:
        key = draw.choice(list(table))
        if not isinstance(table[key], dict) or draw.integers(3) == 0:
            break
        table = table[key]
    if draw.integers(4) == 0:
        del table[key]
    else:
        table[key] = JUNK[draw.integers(len(JUNK))]
    (newest / "state.json").write_text(json.dumps(values), "utf-8")
    models.sum_anew(newest)
    return True


def changed_line(run: Path, draw: Draw) -> bool:
    """Change one digit in one line of the metrics."""
    path = run / "metrics.jsonl"
    data = bytearray(path.read_bytes())
    digits = [match.start() for match in re.finditer(rb"\d", data)]
    at = digits[draw.integers(len(digits))]
    data[at] = (data[at] - 47) % 10 + 48
    path.write_bytes(data)
    return False


def file_for_a_folder(run: Path, draw: Draw) -> bool:
    """Put a file in place of one of the run's folders."""
    path = run / draw.choice(["model", "checkpoints"])
    shutil.rmtree(path, ignore_errors=True)
    path.write_text("the user's own", "utf-8")
    return False


DAMAGES: tuple[Damage, ...] = (damaged_file, edited_state, damaged_file, edited_state, changed_line,
                               file_for_a_folder)  # fmt: skip


class Runs:
    """Each case damages a run that has one step left, and resumes it."""

    units = "damaged runs"

    def __init__(self, place: Path) -> None:
        self.place = place
        write(place / "whole", STEPS, 3, 1)
        children.warm(place / "whole", ["train", "tiny.toml", "--run", RUN])
        self.reference = contents(place / "whole" / RUN)
        shutil.copytree(place / "whole", place / "half")
        shutil.rmtree(place / "half" / RUN / "model")
        shutil.rmtree(place / "half" / RUN / "checkpoints" / f"step-{STEPS:08d}")

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw = np.random.default_rng(number)
        damage = DAMAGES[draw.integers(len(DAMAGES))]
        folder = self.place / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.place / "half", folder)
        others = damage(folder / RUN, draw)
        ended = children.command(["train", "--resume", RUN], folder)
        became = children.verdict(ended)
        if became == "done":
            became = difference(folder / RUN, self.reference)
            steps = {path.name for path in (folder / RUN / "checkpoints").glob("step-*")}
            if steps - {f"step-{step:08d}" for step in range(STEPS + 1)}:
                became = f"OTHER STEPS {sorted(steps)}"
            elif others and became != "same bits":
                became = "resumed from the edited state"
        told = ended.err[-500:] if became[:1].isupper() else ""
        kind = damage.__name__.replace("_", " ")
        return Case(kind, became, seconds=ended.seconds, figures=told)
