"""`pellucid export` writes what another engine opens, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.small import write_model

from pellucid.apps.cli.main import main

HUGGINGFACE = Path(__file__).parents[2] / "fixtures" / "huggingface"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("engine", "files"),
    [
        pytest.param(
            "ctranslate2",
            ["config.json", "model.bin", "shared_vocabulary.json", "tokenizer.json"],
            marks=pytest.mark.oracle("ctranslate2"),
        ),
        pytest.param(
            "onnx",
            ["config.json", "decoder.onnx", "encoder.onnx", "tokenizer.json"],
            marks=pytest.mark.oracle("onnx"),
        ),
    ],
)
def test_it_writes_the_engines_files(
    model: Path, engine: str, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = model.parent / "exported"
    assert main(["export", str(model), str(folder), "--to", engine]) == 0
    assert sorted(path.name for path in folder.iterdir()) == files
    assert "MB" in capsys.readouterr().out


@pytest.mark.parametrize(("family", "graph"), [("llama", "decoder.onnx"), ("bert", "encoder.onnx")])
@pytest.mark.oracle("onnx")
def test_a_model_of_one_stack_is_one_graph(family: str, graph: str, tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    assert main(["export", str(HUGGINGFACE / family), str(folder), "--to", "onnx"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", graph]


def test_int8_is_not_onnxs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", str(model), str(model.parent / "x"), "--to", "onnx", "--weights", "int8"]
    assert main(arguments) == 2
    assert "CTranslate2's" in capsys.readouterr().err


def test_a_model_trained_here_is_not_written_for_transformers(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(model), str(model.parent / "x"), "--to", "huggingface"]) == 1
    assert "--to onnx writes it, and --to ctranslate2 one that generates" in capsys.readouterr().err
    assert not (model.parent / "x").exists()


def test_a_missing_model_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["export", str(tmp_path / "none"), str(tmp_path / "x"), "--to", "onnx"]
    assert main(arguments) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["huggingface", "onnx", "ctranslate2"])
def test_a_folder_that_is_there_stays_as_it_is(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kept := tmp_path / "precious" / "thesis.txt").parent.mkdir()
    kept.write_text("years of work")
    assert main(["export", str(HUGGINGFACE / "bart"), str(kept.parent), "--to", engine]) == 1
    assert "already exists; choose another folder" in capsys.readouterr().err
    assert [path.name for path in kept.parent.iterdir()] == ["thesis.txt"]
