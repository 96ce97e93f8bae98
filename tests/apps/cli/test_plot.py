"""`pellucid plot`: every picture as svg and png, and clear messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pellucid.apps.cli.main import main
from pellucid.apps.teach.pictures import PICTURES


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_written(name: str, tmp_path: Path) -> None:
    for suffix, begins in ((".svg", b"<?xml"), (".png", b"\x89PNG")):
        path = tmp_path / "new" / f"{name}{suffix}"
        assert main(["plot", name, "--output", str(path), "--lang", "en"]) == 0
        assert path.read_bytes().startswith(begins)


def test_the_file_is_named_after_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "softmax"]) == 0
    assert capsys.readouterr().out == "wrote softmax.svg\n"
    assert (tmp_path / "softmax.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no picture given; there are: curves, softmax, activations"),
        (["softmx"], "no picture 'softmx'"),
        (["softmax", "--output", "a.gif"], "--output must end in .svg, .png, .pdf; got 'a.gif'"),
    ],
)
def test_wrong_use_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_records_is_told_from_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", "curves", str(tmp_path)]) == 1
    assert f"{tmp_path}: there is no run here with a metrics.jsonl" in capsys.readouterr().err
    (tmp_path / "metrics.jsonl").touch()
    assert main(["plot", "curves", str(tmp_path)]) == 1
    assert f"{tmp_path}: its metrics.jsonl has no records yet" in capsys.readouterr().err


def test_a_missing_matplotlib_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", "softmax"]) == 1
    assert "'matplotlib>=" in capsys.readouterr().err
