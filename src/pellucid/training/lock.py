"""One process at a time: a lock that the system takes back if its holder dies, even by kill -9."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO

from pellucid.errors import UserError
from pellucid.training.files import saving

if sys.platform == "win32":
    import msvcrt

    # Far behind the text, because Windows lets nobody read a locked byte.
    def _take(file: IO[str]) -> None:
        file.seek(1 << 20)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """Hold `path` until `release`. Raises `UserError` when another process holds it."""

    def __init__(self, path: Path) -> None:
        with saving(path):
            self._file = path.open("a+", encoding="utf-8")
        try:
            _take(self._file)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise UserError(
                f"{path.parent}: this run folder is in use by process {holder}; wait for it, stop "
                "it, or choose another folder"
            ) from None
        with saving(path):
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()

    def release(self) -> None:
        """Let go; the file stays, since deleting it would let two processes in."""
        self._file.close()
