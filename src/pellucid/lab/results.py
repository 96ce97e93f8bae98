"""The results file: one line of JSON for each run that ended, appended by one process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pellucid.errors import UserError
from pellucid.lab.trial import FORMAT
from pellucid.training.files import saving

Line = Mapping[str, Any]


def read_results(path: Path) -> dict[str, Line]:
    """Return the last line of every run, by its id.

    A last line without its end, which a power cut may leave, is passed over: its run is simply done
    again from the run folder.

    Raises `UserError` for a line of another format, or one that is damaged, naming it.
    """
    found: dict[str, Line] = {}
    if not path.exists():
        return found
    with saving(path):
        lines = path.read_text(encoding="utf-8").split("\n")
    for number, text in enumerate(lines[:-1], 1):  # what follows the last line end is no line
        try:
            line = json.loads(text)
            made_by, run = line["format"], line["id"]
        except (ValueError, LookupError, TypeError):
            raise UserError(
                f"{path}, line {number}: is damaged (not a line of results); take it out, and its "
                "run is done again"
            ) from None
        if made_by != FORMAT:
            raise UserError(
                f"{path}, line {number}: results format {made_by}, this Pellucid reads {FORMAT}; "
                "report it with the version that wrote it, or choose another results file"
            )
        found[run] = line
    return found


def append_result(path: Path, line: Line) -> None:
    """Append one line and see it onto the disk: it is one write, so it is there or it is not."""
    text = json.dumps(line, allow_nan=False, ensure_ascii=False)
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            _drop_half_line(file)
            file.write(text.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _drop_half_line(file: BinaryIO) -> None:
    file.seek(0)
    end = file.read().rfind(b"\n") + 1
    file.truncate(end)
