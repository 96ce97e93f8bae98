"""Keep a table in the user's folder between calls of a command, as JSON."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pellucid.core.errors import UserError
from pellucid.system.files import read_file, write_atomically


def keep(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table to a file, as JSON; create the file's folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(table, indent=2, ensure_ascii=False).encode())


def read_kept(path: Path, **fields: Callable[[Any], Any]) -> dict[str, dict[str, Any]]:
    """Read a table with these fields in each row; an empty one if there is no file.

    fields: functions that convert each field. Raises `UserError` for another kind of file.
    """
    if not path.exists():
        return {}
    try:
        return {
            name: {field: read(row[field]) for field, read in fields.items()}
            for name, row in json.loads(read_file(path)).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} cannot be read; delete it to begin anew") from error
