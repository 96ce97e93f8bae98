"""The results file: one line of JSON for each run that ended, appended by one study at a time."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.core.errors import UserError
from pellucid.core.files import saving
from pellucid.training.lock import InUseError, Lock, take

FORMAT = 1
BEGINNING = b'{"format"'
"""Of every line: by it half a line is known from the text of another file."""
Line = Mapping[str, Any]

# What a line must have, and as what; "data" came later, so older lines do without.
_TEXT, _WHOLE, _NUMBER = "text", "a whole number", "a finite number"
_TABLE, _LIST = "a table", "a list"
_ALWAYS = {
    "study": _TEXT,
    "change": _TEXT,
    "seed": _WHOLE,
    "id": _TEXT,
    "ended": _TEXT,
    "minutes": _NUMBER,
}
_BY_STATUS: Mapping[str, Mapping[str, str]] = {
    "failed": {"error": _TEXT},
    "done": {
        "metrics": _TABLE,
        "curve": _TABLE,
        "probes": _LIST,
        "steps": _WHOLE,
        "parameters": _WHOLE,
        "vocabulary": _LIST,
        "pairs": _WHOLE,
        "answer_tokens": _NUMBER,
        "settings": _TABLE,
        "environment": _TABLE,
        "machine": _TABLE,
    },
}
_CURVE = dict.fromkeys(("epoch", "train", "train_token", "valid"), _LIST)
_PROBE = {
    "step": _WHOLE,
    **dict.fromkeys(("attention", "by_keys", "lengths", "gradients", "dead"), _TABLE),
}


class LineError(UserError):
    """A line that cannot be taken; `what` says why."""

    def __init__(self, place: str, what: str, remedy: str) -> None:
        super().__init__(f"{place}: {what}; {remedy}")
        self.what = what


class _WrongError(ValueError):
    """Says what is wrong with a line."""


def read_results(path: Path) -> dict[str, Line]:
    """Return the last line of every run, by its id: one that failed may be done later.

    Half a line at the end, which a power cut may leave, is passed over: its run is simply done
    again from the run folder.

    Raises `UserError` for a file that cannot be read, a line of another format or damaged, naming
    it, and two of one run with different figures, as joining files by hand may give.
    """
    _refuse_folder(path)
    try:
        lines = path.read_bytes().split(b"\n")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read: {error.strerror}; mend the permissions, or choose another "
            "results file"
        ) from None
    found: dict[str, Line] = {}
    if not _is_whole(lines[-1]):
        lines.pop()
    for number, text in enumerate(lines, 1):
        if not text.strip():  # as taking a line out by hand may leave
            continue
        line = parse_line(text, f"{path}, line {number}")
        before = found.get(line["id"], line)
        if before["status"] == line["status"] == "done" and before["metrics"] != line["metrics"]:
            raise LineError(
                f"{path}, line {number}",
                f"{line['change']} with seed {line['seed']} was done before, and came to other "
                "figures",
                "take one of the two lines out",
            )
        found[line["id"]] = line
    return found


def parse_line(text: bytes, place: str) -> dict[str, Any]:
    """Return a run's line as it was written.

    Raises `LineError`, naming `place`, for one that is damaged or of another format.
    """
    try:
        line = json.loads(text.decode("utf-8"))
        made_by = line["format"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise _damaged(place, "not a line of results") from None
    if made_by != FORMAT:
        raise LineError(
            place,
            f"results format {made_by}, this Pellucid reads {FORMAT}",
            "report it with the version that wrote it, or choose another results file",
        )
    try:
        _check(line)
    except _WrongError as wrong:
        raise _damaged(place, str(wrong)) from None
    found: dict[str, Any] = line
    return found


@contextmanager
def hold_results(path: Path) -> Iterator[None]:
    """Keep other studies from appending to a results file, and see that it can be appended to.

    Raises `UserError` that names the process which holds it, or why it cannot be written.
    """
    _refuse_folder(path)
    with saving(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(path.with_name(f".{path.name}.lock"))
    except InUseError as error:
        raise UserError(
            f"{path}: process {error.holder} is doing runs for this file; wait for it, stop it "
            "(Ctrl-C: it saves, and the same command goes on), or name another results file and "
            "folder"
        ) from None
    try:
        with _opened(path):
            pass
        yield
    finally:
        lock.release()


def append_result(path: Path, line: Line) -> None:
    """Append one line and see it onto the disk: it is one write, so it is there or it is not."""
    text = json.dumps(line, allow_nan=False, ensure_ascii=False)
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _opened(path) as file:
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a results file for appending, locked, its last line ended.

    Half a line is dropped; anything else without an end makes it a file of somebody else's, which
    raises `UserError`.
    """
    with saving(path), path.open("ab+") as file:
        take(file, wait=True)  # what looks like half a line may be another's, being written
        file.seek(0)
        text = file.read()
        end = text.rfind(b"\n") + 1
        tail = text[end:]
        if _is_whole(tail):
            file.write(b"\n")
        elif tail[: len(BEGINNING)] == BEGINNING[: len(tail)]:
            file.truncate(end)
        else:
            raise UserError(
                f"{path}: its end is no line of results: {tail[:40]!r}; choose another results file"
            )
        yield file


def _is_whole(tail: bytes) -> bool:
    """Return whether what stands behind the last line end is a line that only lacks its own."""
    try:
        return isinstance(json.loads(tail), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise UserError(
            f"{path}: is a folder, expected a results file; name one, as {path / 'results.jsonl'}"
        )


def _damaged(place: str, what: str) -> LineError:
    remedy = "take it out, and its run is taken again from its folder, or done again without one"
    return LineError(place, f"is damaged ({what})", remedy)


# what a line must be ------------------------------------------------------------------------------


def _check(line: Any) -> None:
    _has(line, _ALWAYS)
    status = line.get("status")
    if not isinstance(status, str) or status not in _BY_STATUS:
        raise _WrongError(f"status: expected done or failed, {_got(line, 'status')}")
    _has(line, _BY_STATUS[status])
    if "data" in line:
        _has(line, {"data": _TEXT})
    if status == "failed":
        return
    for name, value in line["metrics"].items():
        if value is not None and not _is(value, _NUMBER):
            raise _WrongError(f"metrics.{name}: expected a finite number or null, got {value!r}")
    _has(line["curve"], _CURVE, "curve.")
    for name in _CURVE:
        for value in line["curve"][name]:
            if not (_is(value, _NUMBER) or (value is None and name == "valid")):
                raise _WrongError(f"curve.{name}: expected finite numbers, got {value!r}")
    for number, probe in enumerate(line["probes"]):
        if not isinstance(probe, dict):
            raise _WrongError(f"probes[{number}]: expected a table, got {probe!r:.40}")
        _has(probe, _PROBE, f"probes[{number}].")


def _has(table: Mapping[str, Any], keys: Mapping[str, str], prefix: str = "") -> None:
    for key, kind in keys.items():
        if key not in table or not _is(table[key], kind):
            raise _WrongError(f"{prefix}{key}: expected {kind}, {_got(table, key)}")


def _got(table: Mapping[str, Any], key: str) -> str:
    return f"got {table[key]!r:.40}" if key in table else "there is none"


def _is(value: Any, kind: str) -> bool:
    if kind in (_WHOLE, _NUMBER):
        kinds = int if kind == _WHOLE else int | float
        # NaN is not <= anything; an int too long for a float compares, but does not convert
        return (
            isinstance(value, kinds)
            and not isinstance(value, bool)
            and abs(value) <= sys.float_info.max
        )
    return isinstance(value, {_TEXT: str, _TABLE: dict, _LIST: list}[kind])
