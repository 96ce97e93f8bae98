"""Stop training at any moment, resume it, and compare with a run that was never stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults import children
from benchmarks.faults.mode import Case

from pellucid.training.events import RECORDED, TIME_FIELDS
from pellucid.training.run import MetricsFile

SETTINGS = """
[tokenizer]
kind = "char"

[model]
d_model = 12
num_attention_heads = 3
encoder_layers = 1
decoder_layers = 1
ffn_dim = 17
dropout = 0.1
max_position_embeddings = 19

[data]
train = ["words.tsv"]
max_tokens = 17
batch_tokens = 256

[training]
steps = {steps}
log_every = 1
validate_unit = "steps"
validate_every = {validate}
checkpoint_every = {checkpoint}
keep = 2
"""
RUN = "run"


def write(place: Path, steps: int, validate: int, checkpoint: int) -> None:
    """Write the settings and the data of a run."""
    place.mkdir(parents=True, exist_ok=True)
    words = ["".join("abcdefg"[(n // 7**k) % 7] for k in range(4)) for n in range(120)]
    text = "".join(f"{word}\t{word.upper()}\n" for word in words)
    (place / "words.tsv").write_text(text, "utf-8")
    settings = SETTINGS.format(steps=steps, validate=validate, checkpoint=checkpoint)
    (place / "tiny.toml").write_text(settings, "utf-8")


def contents(run: Path) -> dict[str, Any]:
    """Return everything that a run wrote, except times; a resumed run must equal it."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(path.relative_to(run))
        lines = path.read_bytes().splitlines()
        if name == "metrics.jsonl":
            found[name] = [
                {k: v for k, v in json.loads(line).items() if k not in TIME_FIELDS}
                for line in lines
            ]
        elif path.name == "state.json":
            found[name] = _without_times(json.loads(path.read_bytes()))
        elif path.name == "SHA256SUMS":
            found[name] = [line for line in lines if not line.endswith(b"  state.json")]
        elif name != ".lock":
            found[name] = lines
    return found


def _without_times(state: Any) -> Any:
    if isinstance(state, dict):
        timed = ("seconds", "metrics_sha256")  # the metrics' lines hold times
        return {k: _without_times(v) for k, v in state.items() if k not in timed}
    return state


def difference(run: Path, reference: dict[str, Any]) -> str:
    """Return "same bits", or the first difference in capitals."""
    found = contents(run)
    for name in sorted({*found, *reference}):
        if found.get(name) != reference.get(name):
            return f"OTHER {name}"
    return "same bits"


# Kills: SIGKILL at a random moment


class Kills:
    """Each case is a run that is killed twice, and then finished."""

    units = "kills"
    steps = 60

    def __init__(self, place: Path) -> None:
        self.place = place
        for name in ("warm", "whole"):
            write(place / name, self.steps, 5, 2)
        children.warm(place / "warm", ["train", "tiny.toml", "--run", RUN])
        began = time.monotonic()
        if _train(place / "whole", None).code:
            raise RuntimeError("the reference could not be trained")
        self.span = time.monotonic() - began
        self.reference = contents(place / "whole" / RUN)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw, folder, kills = np.random.default_rng(number), self.place / "killed", 0
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, self.steps, 5, 2)
        while kills < 2:
            child = children.start(lambda: children.main(_words(folder)), folder)
            time.sleep(draw.uniform(0.0, self.span))
            os.kill(child, signal.SIGKILL)  # also if it has ended: it is not yet waited for
            status = os.waitpid(child, 0)[1]
            if os.WIFSIGNALED(status):
                kills += 1
            elif os.waitstatus_to_exitcode(status):
                return Case("killed", "FAILED", kills, figures=(folder / ".stderr").read_text())
            else:  # it was faster: again, from the beginning
                shutil.rmtree(folder / RUN)
        ended = _train(folder, None)
        if ended.code:
            return Case("killed", "NOT RESUMED", kills, figures=ended.err)
        return Case("killed at a random moment", difference(folder / RUN, self.reference), kills)


def _words(folder: Path) -> list[str]:
    """Return the command that starts a run, or resumes it if it exists."""
    begun = (folder / RUN / "config.toml").exists()
    return ["train", *(["--resume", RUN] if begun else ["tiny.toml", "--run", RUN])]


def _train(folder: Path, crash: int | None, *, watched: bool = False) -> children.Ended:
    """Start or resume a run; it ends at the crash point, or when it is done."""

    def body() -> int:
        if watched:
            watch(folder, crash)
        return children.main(_words(folder))

    return children.run(body, folder)


# Crash points: a fork ends just before its n-th operation on the disk, or half way through it


class Crashes:
    """Each case ends a run at one point; the cases together are all points of a run."""

    units = "crash points"

    def __init__(self, place: Path, steps: int = 6) -> None:
        self.place, self.steps = place, steps
        self.points: list[str] = []
        write(place / "warm", steps, 3, 1)
        children.warm(place / "warm", ["train", "tiny.toml", "--run", RUN])
        write(place / "whole", steps, 3, 1)
        ended = _train(place / "whole", None, watched=True)
        if ended.code:
            raise RuntimeError(ended.err)
        self.points = (place / "whole" / "points").read_text("utf-8").splitlines()
        self.reference = contents(place / "whole" / RUN)
        self.count = len(self.points)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        folder, what = self.place / "crashed", self.points[number]
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, self.steps, 3, 1)
        ended = _train(folder, number, watched=True)
        if ended.code != children.KILLED:
            return Case(what, "NOT REACHED", figures=ended.err)
        ended = _train(folder, None)
        if ended.code:
            return Case(what, "NOT RESUMED", figures=ended.err)
        return Case(what, difference(folder / RUN, self.reference))


def watch(folder: Path, crash: int | None) -> None:
    """Count the operations that change files in `folder`.

    End the process at number `crash`. Their names are appended to the file `points`. Flushing a
    file and writing a line of metrics have two points each: before, and with half of the bytes
    written.
    """
    points, count, root = os.open(folder / "points", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 0, ""
    root = str((folder / RUN).resolve())

    def point(what: str, half: Callable[[], None] = lambda: None) -> None:
        nonlocal count
        if count == crash:
            half()
            os._exit(children.KILLED)
        count += 1
        os.write(points, f"{what}\n".encode())

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        kind = {"os.rename": "rename", "os.remove": "delete", "os.mkdir": "new folder",
                "os.rmdir": "delete", "os.truncate": "truncate"}.get(event)  # fmt: skip
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            kind = "open to write"
        if kind and not isinstance(arguments[0], int):
            path = str(Path(os.fsdecode(arguments[0])).absolute())
            if path.startswith(root) or kind == "delete":  # rmtree gives names without their folder
                point(f"before: {kind}")

    # Only this forked child is changed.
    fsync, told = os.fsync, MetricsFile.__call__

    def synced(descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if Path(f"/proc/self/fd/{descriptor}").is_file():
            point("half way: write", lambda: os.truncate(_path(descriptor), size // 2))
        point("before: flush to disk")
        fsync(descriptor)

    def line(self: MetricsFile, event: Any) -> None:
        before = self.path.stat().st_size

        def half() -> None:
            told(self, event)
            os.truncate(self.path, (before + self.path.stat().st_size) // 2)

        if isinstance(event, RECORDED):
            point("half way: line of metrics", half)
        told(self, event)

    os.fsync = synced  # type: ignore[assignment]
    MetricsFile.__call__ = line  # type: ignore[method-assign]
    sys.addaudithook(audit)


def _path(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())
