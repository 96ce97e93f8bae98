"""One process at a time: a lock that the system takes back if its holder dies, even by kill -9."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import IO, Any

from pellucid.core.errors import UserError
from pellucid.core.files import saving

if sys.platform == "win32":
    import msvcrt

    # Far behind the text, because Windows lets nobody read a locked byte.
    def take(file: IO[Any], *, wait: bool = False) -> None:
        """Lock an open file until it is closed. Raises `OSError` when another process has it."""
        file.seek(1 << 30)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def take(file: IO[Any], *, wait: bool = False) -> None:
        """Lock an open file until it is closed. Raises `OSError` when another process has it."""
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


class InUseError(UserError):
    """Another process, `holder`, has it."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class Lock:
    """Hold `path` until `release`. Raises `InUseError` when another process holds it."""

    def __init__(self, path: Path) -> None:
        with saving(path):
            self._file = path.open("a+", encoding="utf-8")
        try:
            take(self._file)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise InUseError(
                f"{path.parent}: this run folder is in use by process {holder}; wait for it, stop "
                "it, or choose another folder",
                holder,
            ) from None
        with saving(path):
            self._file.truncate(0)
            self._file.write(str(os.getpid()))
            self._file.flush()

    def release(self) -> None:
        """Let go; the file stays, since deleting it would let two processes in."""
        self._file.close()
