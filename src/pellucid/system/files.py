"""Files, read and written whole: a reader finds the old one or the new one, no mixture."""

import errno
import hashlib
import os
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pellucid.core.errors import UsageError, UserError

TEMPORARY = ".tmp-"
SUMS = "SHA256SUMS"
"""The digests of a folder's files, as `sha256sum --check SHA256SUMS` reads them."""
MOST_BYTES = 2**30
"""The most bytes of a settings file or a tokenizer: a larger one is damaged, or another file."""


class SavingError(UserError):
    """A full disk, or a place that cannot be written or is not there."""


@contextmanager
def saving(path: Path, kept: str = "what was saved before is whole") -> Iterator[None]:
    """Turn a full disk, or an unwritable or absent folder, into a `SavingError` of `path`."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOENT and not path.parent.is_dir():
            raise SavingError(
                f"{path}: cannot be written: there is no folder {path.parent}; make it, or choose "
                "another place"
            ) from error
        reason = error.strerror or str(error)
        raise SavingError(
            f"{path}: cannot be written: {reason}; {kept}. Free some space or fix the "
            "permissions, then go on"
        ) from error


def read_file(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a file of at most `most` bytes.

    Raises `UserError` naming it when it cannot be read, is larger, or is a pipe or a device, which
    could block for ever or never end.
    """
    try:
        check_file(path, most)
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except MemoryError:
        size = path.stat().st_size
        raise UserError(f"{path}: has {size} bytes, more than the memory holds") from None


def check_file(path: Path, most: int | None = None, *, pipes: bool = False) -> None:
    """Raise `UserError` for a device, a pipe unless `pipes`, and a file of more than `most` bytes.

    A pipe could block for ever, a device never end. Raises `OSError` when there is no such file.
    """
    found = path.stat()
    kinds = (stat.S_ISREG, stat.S_ISDIR, *((stat.S_ISFIFO,) if pipes else ()))
    if not any(is_kind(found.st_mode) for is_kind in kinds):
        raise UserError(f"{path}: is a {'' if pipes else 'pipe or a '}device; expected a file")
    if most is not None and found.st_size > most:
        raise UserError(f"{path}: has {found.st_size} bytes; expected at most {most}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. Raises `UsageError` naming the file when it cannot be read."""
    try:
        check_file(path, MOST_BYTES)
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Notepad writes a mark
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the content of SHA256SUMS for these files.

    >>> checksums({"a": b"1"})
    b'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  a\\n'
    """
    return "".join(f"{_digest(data)}  {name}\n" for name, data in files.items()).encode()


def changed_file(folder: Path, files: Mapping[str, bytes]) -> str | None:
    """Return the first of a folder's files whose digest is not the one in SHA256SUMS, or None.

    Raises `UserError` when SHA256SUMS cannot be read, or holds anything else.
    """
    sums = read_file(folder / SUMS)
    try:
        pairs = (line.split("  ", 1) for line in sums.decode("ascii").splitlines())
        known = {name: digest for digest, name in pairs}
    except ValueError:
        raise UserError(f"{folder / SUMS}: is damaged; copy it again") from None
    return next((name for name, data in files.items() if _digest(data) != known.get(name)), None)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: a temporary file next to it, flushed, then renamed.

    Raises `UserError` when it cannot be written; a file that was there stays as it was.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with saving(path):
        try:
            _write(temporary, content)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        flush_folder(path.parent)


def write_folder_atomically(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder with these files in place whole; an older folder of that name gives way last.

    Raises `UserError` when it cannot be written; a folder that was there stays as it was.
    """
    with folder_atomically(path) as temporary:
        for name, content in files.items():
            _write(temporary / name, content)


@contextmanager
def folder_atomically(path: Path) -> Iterator[Path]:
    """Give a new folder to write into, which is put in place whole when the block ends.

    Raises `UserError` when it cannot be written; a folder that was there stays as it was.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    older = path.with_name(f"{TEMPORARY}older-{path.name}")
    if path.is_file():
        raise SavingError(f"{path}: is a file; move it away, a folder is to be written there")
    with saving(path):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            flush_folder(temporary)
            if path.exists():
                shutil.rmtree(older, ignore_errors=True)
                path.replace(older)
            temporary.replace(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            if older.exists() and not path.exists():
                older.replace(path)
            raise
        flush_folder(path.parent)
        shutil.rmtree(older, ignore_errors=True)


def remove_temporary(folder: Path, *names: str) -> None:
    """Remove what an interrupted write of these names left behind; a * matches anything.

    A folder that was about to be replaced, and was not, gets its name back.
    """
    kept = f"{TEMPORARY}older-"
    for older in [older for name in names for older in folder.glob(kept + name)]:
        if not (path := older.with_name(older.name.removeprefix(kept))).exists():
            older.replace(path)
    patterns = [f"{TEMPORARY}{kind}{name}" for name in names for kind in ("", "older-")]
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power failure, where the system can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
