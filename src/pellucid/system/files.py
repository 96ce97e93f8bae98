"""Read whole files; write files atomically: a reader sees the old or the new one, never a mix."""

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
"""The file with the digests of a folder's files, in the format of `sha256sum --check`."""
MOST_BYTES = 2**30
"""The maximum size of a settings file or a tokenizer: a larger one is damaged, or another file."""


class SavingError(UserError):
    """A file cannot be written: the disk is full, or the folder is missing or not writable."""


@contextmanager
def saving(path: Path, kept: str = "what was saved before is whole") -> Iterator[None]:
    """Convert an `OSError` inside this block to a `SavingError` that names `path`.

    `kept` tells the user what is not lost.
    """
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
    """Return the content of a file of at most `most` bytes; None: of any size.

    Raises `UserError` naming it if it cannot be read, is larger, does not fit into memory, or is a
    pipe or a device, which could block for ever or never end.
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
    """Raise `UserError` for a device, a pipe (unless `pipes`), or a file of more than `most` bytes.

    A pipe could block for ever, a device never end. A folder passes. Raises `OSError` if the file
    does not exist or cannot be reached.
    """
    found = path.stat()
    kinds = (stat.S_ISREG, stat.S_ISDIR, *((stat.S_ISFIFO,) if pipes else ()))
    if not any(is_kind(found.st_mode) for is_kind in kinds):
        raise UserError(f"{path}: is a {'' if pipes else 'pipe or a '}device; expected a file")
    if most is not None and found.st_size > most:
        raise UserError(f"{path}: has {found.st_size} bytes; expected at most {most}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; a byte order mark is ignored.

    Raises `UsageError` naming the file if it is missing, cannot be read or is not valid TOML in
    UTF-8; `UserError` if it is a pipe, a device or larger than `MOST_BYTES`.
    """
    try:
        check_file(path, MOST_BYTES)
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows may write a BOM
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the content of the file SHA256SUMS for these files.

    >>> checksums({"a": b"1"})
    b'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b  a\\n'
    """
    return "".join(f"{_digest(data)}  {name}\n" for name, data in files.items()).encode()


def changed_file(folder: Path, files: Mapping[str, bytes]) -> str | None:
    """Return the name of the first file whose digest differs from SHA256SUMS, or None.

    files: the contents of the folder's files by name. One that SHA256SUMS does not list differs;
    one that only SHA256SUMS lists is not checked. Raises `UserError` if SHA256SUMS cannot be read
    or is damaged.
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
    """Write a file completely or not at all, by renaming a temporary file that has been flushed.

    Raises `UserError` if it cannot be written; an older file then stays as it was.
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
    """Write a folder with these files completely or not at all; it replaces an older folder.

    Raises `UserError` if it cannot be written, or if `path` is a file; an older folder then stays
    as it was.
    """
    with folder_atomically(path) as temporary:
        for name, content in files.items():
            _write(temporary / name, content)


@contextmanager
def folder_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary folder to write into; rename it to `path` when the block ends.

    If the block raises, the temporary folder is deleted. An older folder at `path` is replaced; for
    a moment there is none, and if the process is killed then, `remove_temporary` restores it.
    Raises `UserError` for an `OSError` in the block, if the folder cannot be written, or if `path`
    is a file; an older folder then stays as it was.
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
    """Remove the temporary files and folders that interrupted writes of these names have left.

    Names may contain *. If the replacement of a folder was interrupted when neither the old nor the
    new one had the name, the old folder gets it back.
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
    """Flush a folder to disk, so that renames in it survive a power failure (not on Windows)."""
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
