"""The results file: one line of JSON per run, written by one study at a time."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.core.errors import UserError
from pellucid.system.files import read_file, saving
from pellucid.training.lock import InUseError, Lock

FORMAT = 1
BEGINNING = b'{"format"'
"""The start of every line; an incomplete last line is recognised by it."""
Line = Mapping[str, Any]

_NUMBER = (int, float)
_FIGURE = int | float | None
_CURVE = ("epoch", "train", "train_token", "valid")
_KINDS = {str: "text", int: "a whole number", _NUMBER: "a number", dict: "a table", list: "a list"}
_ALWAYS = {
    **dict.fromkeys(("study", "change", "id", "ended"), str),
    "seed": int,
    "minutes": _NUMBER,
}
_BY_STATUS: Mapping[str, Mapping[str, Any]] = {
    "failed": {**_ALWAYS, "error": str},
    "done": {
        **_ALWAYS,
        **dict.fromkeys(("metrics", "curve", "settings", "environment", "machine"), dict),
        **dict.fromkeys(("probes", "vocabulary"), list),
        **dict.fromkeys(("steps", "parameters", "pairs"), int),
        "answer_tokens": _NUMBER,
    },
}


class LineError(UserError):
    """A line of results is unusable; `reason` is the short description of the error."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_results(path: Path) -> dict[str, Line]:
    """Read a results file; return one line for each run, by the run's id.

    It is the run's last line with status "done", or else its last line. An incomplete last line, as
    a power cut may leave, is skipped; its run is then resumed. A missing file has no lines. Raises
    `UserError` for a file that cannot be read, for a damaged line or another format, and for two
    lines of one run that are both "done" with different metrics.
    """
    _refuse_folder(path)
    if not path.exists():
        return {}
    lines = read_file(path).split(b"\n")
    found: dict[str, Line] = {}
    if not _is_whole(lines[-1]):
        lines.pop()
    for number, text in enumerate(lines, 1):
        if not text.strip():  # as deleting a line by hand may leave
            continue
        line = parse_line(text, f"{path}, line {number}")
        before = found.get(line["id"], line)
        if before["status"] == line["status"] == "done" and before["metrics"] != line["metrics"]:
            raise UserError(
                f"{path}, line {number}: {line['change']} with seed {line['seed']} has an earlier "
                "line with other figures; delete one of the two lines"
            )
        if before["status"] == "failed" or line["status"] == "done":
            found[line["id"]] = line
    return found


def parse_line(text: bytes, place: str) -> dict[str, Any]:
    """Parse and check a line of results.

    Raises `LineError`, whose message begins with `place`, if it is damaged or of another format.
    """
    try:
        line: dict[str, Any] = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
        if line["format"] != FORMAT:
            raise LineError(
                f"results format {line['format']}, this Pellucid reads {FORMAT}",
                f"{place}: results format {line['format']}, this Pellucid reads {FORMAT}; report "
                "it with the version that wrote it, or choose another results file",
            )
        wrong = _first_error(line)
    except (ValueError, LookupError, TypeError, RecursionError):
        wrong = "not a line of results"
    if wrong:
        raise LineError(
            f"is damaged ({wrong})",
            f"{place}: is damaged ({wrong}); delete it; its run is then read from its folder, or "
            "done again",
        )
    return line


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _first_error(line: Line) -> str:
    """Describe the first error in the fields of a line; "" if there is none."""
    kinds = _BY_STATUS.get(str(line.get("status")))
    if kinds is None:
        return f"status: expected done or failed, got {line.get('status')!r}"
    for key, kind in kinds.items():
        if not isinstance(line.get(key), kind):
            if key not in line:
                return f"{key}: expected {_KINDS[kind]}, it is missing"
            return f"{key}: expected {_KINDS[kind]}, got {line[key]!r:.40}"
    return "" if line["status"] == "failed" else _inner_error(line)


def _inner_error(line: Line) -> str:
    """Describe the first error inside the nested fields of a finished run's line, or ""."""
    steps = [p.get("step") if isinstance(p, dict) else None for p in line["probes"]]
    parts: list[tuple[str, Any, Any]] = [
        *((f"curve.{name}", line["curve"].get(name), _FIGURE) for name in _CURVE),
        ("metrics", list(line["metrics"].values()), _FIGURE),
        ("vocabulary", line["vocabulary"] or None, int),
        ("probes: step", steps, int),
    ]
    for name, values, kind in parts:
        if not isinstance(values, list) or not all(isinstance(x, kind) for x in values):
            return f"{name}: expected numbers"
    return ""


@contextmanager
def open_results(path: Path) -> Iterator[Callable[[Line], None]]:
    """Lock a results file against other studies; yield a function that appends a line.

    The file is created if it is missing. Raises `UserError` if another process holds the lock (the
    message has its id), if the file cannot be written, or if it does not end like a results file.
    The function raises `UserError` too if it cannot write.
    """
    _refuse_folder(path)
    with saving(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(path.with_name(f".{path.name}.lock"))
    except InUseError as error:
        raise UserError(
            f"{path}: process {error.holder} is writing to this file; wait for it, stop it "
            "(Ctrl-C: it saves, and the same command resumes), or use another results file and "
            "folder"
        ) from None
    try:
        _append(path, b"")
        yield lambda line: _append(
            path, json.dumps(line, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        )
    finally:
        lock.release()


def _append(path: Path, text: bytes) -> None:
    """Append text in one write and flush it to the disk.

    An incomplete last line is removed first; a complete one without a line end gets its line end.
    Raises `UserError` if the file ends in anything else, because it is then no results file.
    """
    with saving(path), path.open("ab+") as file:
        file.seek(0)
        before = file.read()
        end = before.rfind(b"\n") + 1
        tail = before[end:]
        if _is_whole(tail):
            text = b"\n" + text
        elif tail[: len(BEGINNING)] == BEGINNING[: len(tail)]:
            file.truncate(end)
        else:
            raise UserError(
                f"{path}: it does not end with a line of results: {tail[:40]!r}; choose another "
                "results file"
            )
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _is_whole(tail: bytes) -> bool:
    """Return whether the text after the last line end is a complete line of JSON."""
    try:
        return isinstance(json.loads(tail), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_folder(path: Path) -> None:
    """Raise `UserError` if the path is a folder."""
    if path.is_dir():
        raise UserError(
            f"{path}: is a folder, expected a results file, such as {path / 'results.jsonl'}"
        )
