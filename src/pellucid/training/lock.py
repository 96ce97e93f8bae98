"""A lock for a folder.

The system releases it when its process dies, even by kill -9.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pellucid.core.errors import UserError
from pellucid.system.files import saving


class InUseError(UserError):
    """The lock is held; `holder` is the number of that process, or "unknown"."""

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class Lock:
    """A lock on the file `path`, held from construction to `release`.

    Raises `InUseError` if another process, or another `Lock` of this one, still holds it after
    `seconds`, and `UserError` if the file cannot be written.
    """

    def __init__(self, path: Path, seconds: float = 0.0) -> None:
        self._lock = FileLock(path, timeout=seconds, thread_local=False)
        with saving(path):
            try:
                self._lock.acquire()
            except Timeout:
                holder = ""
                with suppress(OSError):
                    holder = path.read_text("utf-8", "replace").strip()
                holder = holder or "unknown"
                raise InUseError(
                    f"{path.parent}: this run folder is in use by process {holder}; wait for it, "
                    "stop it, or choose another folder",
                    holder,
                ) from None
            if sys.platform != "win32":  # there a lock keeps everyone from writing to the file
                path.write_text(str(os.getpid()), encoding="utf-8")

    def release(self) -> None:
        """Release the lock.

        The file stays, because deleting it could let two processes in.
        """
        self._lock.release()
