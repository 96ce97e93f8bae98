"""Write generated files, or check that they are up to date; the scripts that make them use it."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def write(files: Mapping[Path, str], arguments: Sequence[str]) -> int:
    """Write the files that differ from their texts; with --check only name them.

    Returns the exit code: 1 if --check finds a file that is out of date.
    """
    stale = [
        path
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" not in arguments:
        for path in stale:
            path.write_text(files[path], encoding="utf-8")
    print(f"out of date: {', '.join(path.name for path in stale)}" if stale else "up to date")
    return 1 if stale and "--check" in arguments else 0
