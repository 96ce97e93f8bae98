from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.core.errors import UserError
from pellucid.system.files import remove_temporary, write_atomically, write_folder_atomically


def content(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_a_file_replaces_another(tmp_path: Path) -> None:
    for text in (b"old", b"new"):
        write_atomically(tmp_path / "file", text)
    assert content(tmp_path) == {"file": b"new"}


def test_a_folder_replaces_another(tmp_path: Path) -> None:
    write_folder_atomically(tmp_path / "folder", {"a": b"1", "b": b"2"})
    write_folder_atomically(tmp_path / "folder", {"a": b"3"})
    assert content(tmp_path / "folder") == {"a": b"3"}
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_failure_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    write_atomically(tmp_path / "file", b"old")
    write_folder_atomically(tmp_path / "folder", {"a": b"old"})

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    if moment == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UserError, match=r"file: cannot be written: No space left.*is whole"):
        write_atomically(tmp_path / "file", b"new")
    with pytest.raises(UserError, match=r"folder: cannot be written: No space left"):
        write_folder_atomically(tmp_path / "folder", {"a": b"new"})
    assert (tmp_path / "file").read_bytes() == b"old"
    assert content(tmp_path / "folder") == {"a": b"old"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"written: there is no folder .*nowhere; make it") as found:
        write_atomically(tmp_path / "nowhere" / "file", b"text")
    assert "space" not in str(found.value)


def test_an_interruption_between_two_renames_loses_neither_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder_atomically(tmp_path / "folder", {"a": b"old"})
    rename = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if target.name == "folder" and "older-" not in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_folder_atomically(tmp_path / "folder", {"a": b"new"})
    assert content(tmp_path / "folder") == {"a": b"old"}
    # As after a kill at that moment.
    (tmp_path / "folder").replace(tmp_path / ".tmp-older-folder")
    remove_temporary(tmp_path, "folder")
    assert content(tmp_path / "folder") == {"a": b"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_where_folders_cannot_be_opened_none_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""

    def refuse(path: object, *_: object) -> int:
        raise PermissionError(13, os.strerror(13), str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        write_atomically(tmp_path / "file", b"text")
    monkeypatch.setattr(sys, "platform", "win32")
    write_atomically(tmp_path / "file", b"text")
    assert content(tmp_path) == {"file": b"text"}


@pytest.mark.skipif(os.name == "nt", reason="RLIMIT_FSIZE is POSIX's")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: the system itself refuses the write."""
    script = """
import resource, signal, sys
from pathlib import Path
from pellucid.core.errors import UserError
from pellucid.system.files import write_folder_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1]) / "folder"
write_folder_atomically(folder, {"a": b"old"})
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_folder_atomically(folder, {"a": b"n" * 5000})
except UserError as error:
    print(error)
"""
    said = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "folder: cannot be written: File too large; what was saved before is whole" in said
    assert content(tmp_path / "folder") == {"a": b"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_what_an_interrupted_write_left_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".tmp-file").write_bytes(b"half")
    for name in (".tmp-folder-1", ".tmp-older-folder-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"half")
    (tmp_path / "folder-1").mkdir()
    for name in ("file", ".tmp-another's", "folder-1/a"):
        (tmp_path / name).write_bytes(b"whole")
    remove_temporary(tmp_path, "file", "folder-*")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".tmp-another's", "file", "folder-1"]
    assert content(tmp_path / "folder-1") == {"a": b"whole"}


def test_a_folder_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("the user's own", encoding="utf-8")
    with pytest.raises(UserError, match="model: is a file"):
        write_folder_atomically(tmp_path / "model", {"a": b"1"})
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model").read_text(encoding="utf-8") == "the user's own"
