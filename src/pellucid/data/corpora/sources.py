"""Where a corpus's files come from: a folder of yours, an installed package, or the network.

In each case the file must have the SHA-256 that is written here.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from pellucid.core.errors import UserError, pip_install

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a public repository, at one commit.

    `path` is also its place inside the folder named by the environment variable PELLUCID_DATA,
    where it is looked for before anything is downloaded.
    """

    path: str
    url: str
    sha256: str

    def read(self, licence: str) -> bytes:
        """Return the file's bytes; download it into the user's cache when it is in neither place.

        A download logs `licence`, the terms of the data, as a warning.

        Raises `UserError` when it cannot be found or downloaded, or is not the expected file.
        """
        if own := self.own():
            return _checked(own, self.sha256, "put the original there, or take the file away")
        return self._downloaded(licence).read_bytes()

    def own(self) -> Path | None:
        """Return its path in the folder that PELLUCID_DATA names; None if it is not there."""
        folder = os.environ.get("PELLUCID_DATA")
        return path if folder and (path := Path(folder, self.path)).exists() else None

    def _downloaded(self, licence: str) -> Path:
        import pooch  # type: ignore[import-untyped]

        cache = Path(os.environ.get("PELLUCID_CACHE") or pooch.os_cache("pellucid"))
        kept = cache / self.path
        if not kept.exists():
            _log.warning("downloading %s; terms of use: %s", self.url, licence)
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            # pooch downloads next to the file and renames; an interrupted download starts again.
            pooch.retrieve(self.url, self.sha256, kept.name, kept.parent, downloader=_download)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{self.url}: cannot be downloaded to {kept} ({error}); fetch it another way and "
                f"put it at {self.path} inside a folder that PELLUCID_DATA names"
            ) from None
        return kept


@dataclass(frozen=True)
class PackageFiles:
    """Data files of an installed package, read without importing any of its code.

    `pattern` is a glob below the folder that holds the package; `sha256` is of all the files one
    after another, sorted by name.
    """

    distribution: str
    version: str
    pattern: str
    sha256: str
    condition: str = ""

    def read(self) -> dict[str, bytes]:
        """Return the files by name. Raises `UserError` saying what to install."""
        install = pip_install(f"{self.distribution}=={self.version}") + self.condition
        try:
            found = distribution(self.distribution)
        except PackageNotFoundError:
            raise UserError(
                f"the data of the package {self.distribution} is not installed; {install}"
            ) from None
        root = Path(str(found.locate_file("")))
        files = {path.name: path.read_bytes() for path in sorted(root.glob(self.pattern))}
        if hashlib.sha256(b"".join(files.values())).hexdigest() != self.sha256:
            raise UserError(
                f"{root / self.pattern}: other data than expected ({self.distribution} "
                f"{found.version} is installed); {install}"
            )
        return files


def _download(url: str, temporary: str, _: object) -> None:
    """Download a file that others may read as the umask says: pooch makes it one's own alone."""
    import pooch

    pooch.HTTPDownloader()(url, temporary, None)
    umask = os.umask(0o077)  # to be read it must be set
    os.umask(umask)
    Path(temporary).chmod(0o666 & ~umask)


def _checked(path: Path, sha256: str, remedy: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if (got := hashlib.sha256(data).hexdigest()) != sha256:
        raise UserError(
            f"{path}: another file than expected (SHA-256 {got[:12]}…, not {sha256[:12]}…); "
            f"{remedy}"
        )
    return data
