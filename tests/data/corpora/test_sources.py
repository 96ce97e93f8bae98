from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from venv import EnvBuilder
from zipfile import ZipFile

import pytest

from pellucid.core.errors import UserError
from pellucid.data.corpora.sources import RemoteFile

DATA = "질문,답\r\n".encode() * 101


class Handler(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        self.asked.append(self.path)


class Site:
    """A server on this machine in place of the public origin."""

    def __init__(self, url: str, asked: list[str]) -> None:
        self.url, self.asked = url, asked

    def file(self, name: str = "data.csv", data: bytes = DATA) -> RemoteFile:
        return RemoteFile(f"set/{name}", f"{self.url}/{name}", hashlib.sha256(data).hexdigest())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "data.csv").write_bytes(DATA)
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked: list[str] = []
    handler = type("H", (Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()
        thread.join()


def test_a_download_is_kept_and_its_terms_are_logged(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    assert site.file().read("MIT") == DATA
    assert f"downloading {site.url}/data.csv; terms of use: MIT" in caplog.text
    caplog.clear()
    assert site.file().read("MIT") == DATA
    assert (site.asked, caplog.text) == (["/data.csv"], "")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_download_can_be_read_by_whom_the_umask_lets(
    site: Site, tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        site.file().read("MIT")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache" / "set" / "data.csv").stat().st_mode) == mode


def test_a_damaged_copy_is_fetched_again(site: Site, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "set" / "data.csv"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(DATA[:-1])
    assert site.file().read("MIT") == DATA == kept.read_bytes()


def test_another_file_than_expected_is_not_kept(site: Site, tmp_path: Path) -> None:
    file = site.file(data=b"other")
    with pytest.raises(UserError, match=r"data.csv: cannot be downloaded .*hash.*PELLUCID_DATA"):
        file.read("MIT")
    assert not list((tmp_path / "cache" / "set").iterdir())


def test_what_is_not_there(site: Site) -> None:
    with pytest.raises(UserError, match=r"none.csv: cannot be downloaded .*404"):
        site.file("none.csv").read("MIT")


def test_no_network(site: Site) -> None:
    # Port 9 is "discard"; nothing listens on it here.
    file = RemoteFile("set/data.csv", "http://127.0.0.1:9/data.csv", site.file().sha256)
    with pytest.raises(UserError, match=r"put it at set/data.csv inside a folder that PELLUCID_D"):
        file.read("MIT")


def test_a_cache_in_the_way(site: Site, tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(UserError, match="cannot be downloaded"):
        site.file().read("MIT")


def test_ones_own_folder_comes_first(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own" / "set" / "data.csv"
    own.parent.mkdir(parents=True)
    monkeypatch.setenv("PELLUCID_DATA", str(tmp_path / "own"))
    own.write_bytes(DATA)
    assert site.file().read("MIT") == DATA
    own.write_bytes(DATA + b"\n")
    with pytest.raises(UserError, match=r"own/set/data.csv: another file than expected .SHA-256"):
        site.file().read("MIT")
    own.unlink()
    own.mkdir()
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        site.file().read("MIT")
    assert site.asked == []
    own.rmdir()
    assert site.file().read("MIT") == DATA
    assert site.asked == ["/data.csv"]


WHEEL = "words/words_package-1.2-py3-none-any.whl"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel where pip looks, of a package that no Python of today may install."""
    made = tmp_path / "index" / Path(WHEEL).name
    made.parent.mkdir()
    with ZipFile(made, "w") as archive:
        archive.writestr("words_package/data/words.txt", DATA)
        about = "Metadata-Version: 2.1\nName: words-package\nVersion: 1.2\nRequires-Python: <3\n"
        archive.writestr("words_package-1.2.dist-info/METADATA", about)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("words_package-1.2.dist-info/WHEEL", tags)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.parent))
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    return made


def wheel_of(data: bytes, version: str = "1.2") -> RemoteFile:
    return RemoteFile(WHEEL, f"words-package=={version}", hashlib.sha256(data).hexdigest())


def test_pip_downloads_a_wheel_for_another_python_once(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = wheel.read_bytes()
    assert wheel_of(data).read("MIT") == data
    assert "downloading words-package==1.2; terms of use: MIT" in caplog.text
    wheel.unlink()
    assert wheel_of(data).read("MIT") == data == (tmp_path / "cache" / WHEEL).read_bytes()
    monkeypatch.setenv("PELLUCID_DATA", str(tmp_path / "own"))
    monkeypatch.setenv("PELLUCID_CACHE", str(tmp_path / "empty"))
    own = tmp_path / "own" / WHEEL
    own.parent.mkdir(parents=True)
    own.write_bytes(data)
    assert wheel_of(data).read("MIT") == data


def test_another_wheel_than_expected_is_not_kept(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"words-package==1.2: cannot be downloaded .*hash"):
        wheel_of(b"other").read("MIT")
    assert not list((tmp_path / "cache" / "words").iterdir())


def test_what_pip_says_of_a_wheel_that_it_cannot_have_is_in_the_message(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = (
        r"`pip download --no-deps .* words-package==1.3` failed: .*No matching distribution.*"
        rf"put it at {WHEEL} inside a folder that PELLUCID_DATA"
    )
    with pytest.raises(UserError, match=message):
        wheel_of(b"", "1.3").read("MIT")
    without_pip = EnvBuilder()
    without_pip.create(wheel.parent / "bare")
    python = without_pip.ensure_directories(wheel.parent / "bare").env_exe
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(UserError, match=r"`pip download .*No module named pip"):
        wheel_of(b"").read("MIT")
