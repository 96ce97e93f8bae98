"""`pellucid view` as a user meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.apps.view.samples import bert, bpe, gpt, shaken, speaking

from pellucid.apps.cli.main import main
from pellucid.tasks import Task
from pellucid.tasks.folder import save_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("trained") / "model"
    save_model(folder, speaking(), "# a model")
    return str(folder)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "70")


def test_it_draws_here_and_writes_the_page(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", model, "가나 a"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("가나 a → ")
    assert "cross-attention, layer 2, mean of 3 heads" in reported
    assert "wrote attention.html" in reported
    assert (tmp_path / "attention.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_page_holds_the_model_unless_it_is_left_out(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "attention.html"
    assert main(["view", model, "가나 a"]) == 0
    assert "The model runs in the page" in capsys.readouterr().out
    assert '<script id="run"' in page.read_text(encoding="utf-8")
    assert main(["view", model, "가나 a", "--no-run"]) == 0
    assert "runs in the page" not in capsys.readouterr().out
    assert '<script id="run"' not in page.read_text(encoding="utf-8")
    assert main(["view", model, "가나 a", "--output", "map.txt"]) == 0
    assert "runs in the page" not in capsys.readouterr().out


def test_a_model_that_the_page_cannot_run_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / "bert", bert(head=False), "# a model")
    assert main(["view", str(tmp_path / "bert"), "가나"]) == 0
    reported = capsys.readouterr()
    assert "runs in the page" not in reported.out
    assert "the page shows this text only: the page runs models that predict" in reported.err


@pytest.mark.parametrize("name", ["run", "run/model"])
def test_the_page_of_a_run_is_in_its_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    save_model(run / "model", speaking(), "# a model")
    (run / "config.toml").touch()
    assert main(["view", name, "가나"]) == 0
    assert "wrote run/attention.html" in capsys.readouterr().out
    assert (run / "attention.html").exists()
    assert not (tmp_path / "attention.html").exists()
    # Root may write anywhere, so a run that cannot be written to is only said to be one.
    monkeypatch.setattr("os.access", lambda path, mode: (path, mode) != (Path("run"), os.W_OK))
    assert main(["view", name, "가나"]) == 0
    assert (tmp_path / "attention.html").exists()


def test_what_to_draw_and_where_is_chosen(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--kind", "encoder", "--layer", "1", "--head", "2", "--output", "a.txt"]
    assert main(["view", model, "가나", "--answer", "다", *options]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("가나 → 다\n")
    assert "encoder self-attention, layer 1, head 2" in reported
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") in reported
    assert not (tmp_path / "attention.html").exists()


def test_a_word_between_colons_is_no_picture(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", model, "가", "--output", ":warning:.txt"]) == 0
    assert "wrote :warning:.txt" in capsys.readouterr().out


def test_files_are_written_though_nobody_reads_the_drawing(model: str, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pellucid", "view", model, "가나"],
        cwd=tmp_path,
        env={**os.environ, "PELLUCID_KERNELS": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(timeout=60) == 0
    assert (tmp_path / "attention.html").exists()


def test_without_layers_there_is_the_page_and_no_drawing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = speaking()
    config = replace(plain.model.config, encoder_layers=0, decoder_layers=0)
    save_model(tmp_path / "flat", replace(plain, model=shaken(config)), "# a model")
    assert main(["view", "flat", "가", "--output", "a.txt", "a.html"]) == 2
    assert "there is no attention to draw" in capsys.readouterr().err
    assert (tmp_path / "a.html").exists()
    assert not (tmp_path / "a.txt").exists()


def test_unknown_characters_are_reported(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", model, "가ж", "--output", "a.txt"]) == 0
    assert "Never seen in training: ж" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "which model, and what text?"),
        (["MODEL"], 2, "which model, and what text?"),
        (["MODEL", ""], 2, "which model, and what text?"),
        (["MODEL", "가" * 24], 1, "24 tokens, more than the 23 that this model can hold"),
        (["MODEL", "가", "--layer", "3"], 2, "no layer 3 of cross-attention"),
        (
            ["MODEL", "가", "--output", "a.html", "--output=b.txt"],
            2,
            "--output is given 2 times, and only the last would count; give all its values after ",
        ),
        (["MODEL", "가", "--output", "a.gif"], 2, "a.gif: a picture's name ends in .html"),
        (["MODEL", "가", "--output", "다"], 2, "--answer gives the model an answer"),
        (["nowhere", "가"], 1, "nowhere: there is no such folder"),
    ],
)
def test_errors_are_named(
    model: str,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["view", *(model if word == "MODEL" else word for word in arguments)]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("half", "text", "reported"),
    [
        (gpt, "가나", "decoder self-attention, layer 2"),
        (bert, "가[MASK]", "encoder self-attention, layer 2"),
    ],
)
def test_the_halves_are_drawn(
    half: Callable[[], Task],
    text: str,
    reported: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_model(tmp_path / "half", half(), "# a half")
    assert main(["view", str(tmp_path / "half"), text]) == 0
    assert reported in capsys.readouterr().out
    assert main(["view", str(tmp_path / "half"), text, "--kind", "cross"]) == 2
    assert "this model has no cross-attention" in capsys.readouterr().err


def test_a_model_of_labels_has_a_page_that_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", "topics-ko", "헤어졌어"]) == 0
    reported = capsys.readouterr().out
    assert reported.startswith("헤어졌어 → parting\n")
    assert "The model runs in the page" in reported
    page = (tmp_path / "attention.html").read_text(encoding="utf-8")
    assert '"labels":"text"' in page
    assert main(["view", "topics-ko", "헤어졌어", "--answer", "love", "--output", "a.txt"]) == 0
    assert capsys.readouterr().out.startswith("헤어졌어 → love\n")
    assert main(["view", "topics-ko", "헤어졌어", "--answer", "lov"]) == 1
    assert "pass one label that the model knows" in " ".join(capsys.readouterr().err.split())


def test_the_page_is_opened_where_and_in_the_language_asked_for(
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    options = ["--kind", "encoder", "--layer", "1", "--head", "3", "--lang", "ko", "--open"]
    assert main(["view", model, "가나", *options]) == 0
    page = tmp_path / "attention.html"
    assert opened == [page.as_uri()]
    html = page.read_text(encoding="utf-8")
    opens = '"tab":"attention","opens":{"kind":"encoder","layer":0,"head":2,'
    assert f'"language":"ko",{opens}' in html
    assert main(["view", model, "가나", "--open", "--output", "a.txt"]) == 2
    assert "--open shows a page, but --output names no .html file" in capsys.readouterr().err
    assert len(opened) == 1


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps with a film, by the command line."""
    folder = tmp_path_factory.mktemp("filmed")
    words = [a + b + "c" for a in "abcdefg" for b in "abcdefg"]
    (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    sizes = ["--model.d-model", "8", "--model.num-attention-heads", "2", "--model.ffn-dim", "8"]
    limits = ["--training.steps", "3", "--training.minutes", "None"]
    data = ["--data.train", str(folder / "pairs.tsv"), "--run", str(folder / "run")]
    assert main(["train", "g2p-demo", "--film", "abc", *sizes, *limits, *data]) == 0
    return folder / "run"


def test_a_run_with_a_film_is_shown_without_a_text(
    filmed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(filmed)]) == 0
    reported = capsys.readouterr().out
    assert "film.html" in reported
    assert "4 steps of the training" in reported
    page = (filmed / "film.html").read_text(encoding="utf-8")
    assert '<script id="film"' in page
    assert '"text":"abc"' in page.split('<script id="run"')[1]
    assert main(["view", str(filmed), "--no-run", "--output", "other.html"]) == 0
    assert '<script id="run"' not in Path("other.html").read_text(encoding="utf-8")
    assert main(["view", str(filmed), "abc", "--output", "map.txt"]) == 0
    assert Path("map.txt").read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--layer", "1"], "a film has its text and answer"),
        (["--answer", "cba"], "a film has its text and answer"),
        (["--with", "runs/other"], "a film has its text and answer"),
        (["--output", "map.png"], "a film is a page"),
    ],
)
def test_what_a_film_cannot_have_is_refused(
    filmed: Path, options: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(filmed), *options]) == 2
    assert error in " ".join(capsys.readouterr().err.split())


def test_a_film_is_shown_while_the_run_trains(
    filmed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(filmed, run, ignore=shutil.ignore_patterns("model", "*.html"))
    assert main(["view", str(run)]) == 0
    assert '<script id="film"' in (run / "film.html").read_text(encoding="utf-8")
    assert main(["view", str(run), "abc"]) == 1
    assert "has no model yet" in capsys.readouterr().err


def test_the_end_of_a_filmed_run_says_how_to_watch_it(
    filmed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--accept-changes", "--training.steps", "4"]
    assert main(["train", str(filmed), "--resume", *more]) == 0
    assert f"watch it:  pellucid view --open {filmed}" in capsys.readouterr().out
    assert (filmed / "film" / "step-00000004.json").exists()
    assert main(["train", str(filmed), "--resume", "--film", "abd", *more]) == 2
    assert "leave --film out" in " ".join(capsys.readouterr().err.split())


def other(page: str, name: str = "other") -> dict[str, Any]:
    """Return the second record of a page, or another."""
    text = Path(page).read_text(encoding="utf-8")
    record = text.split(f'<script id="{name}"')[1].partition(">")[2].partition("</script>")[0]
    found: dict[str, Any] = json.loads(record)
    return found


def test_a_second_model_and_a_second_text_are_in_the_page(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", model, "가나다", "--with", model, "--output", "with.html"]) == 0
    found = other("with.html")
    assert found["name"] == model
    assert [label[0] for label in found["source"]] == list("가나다")
    assert main(["view", model, "가나다", "--with-text", "바사", "--output", "text.html"]) == 0
    assert [label[0] for label in other("text.html")["source"]] == list("바사")
    assert main(["view", model, "가", "--with", "no-such-model"]) == 1
    assert "no-such-model: there is no such folder" in capsys.readouterr().err


def test_the_other_model_is_given_the_same_tokens(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(Path("bytes"), speaking(bpe()), "")  # whose answer is not what its text is cut into
    for given in ([], ["--answer", ""]):
        asked = ["bytes", "가", "--with", "bytes", "--no-run", "--output", "c.html", *given]
        assert main(["view", *asked]) == 0
        first, second = (other("c.html", name) for name in ("record", "other"))
        assert [step["token"] for step in first["steps"]] == [
            step["token"] for step in second["steps"]
        ]
        assert first["loss"] == second["loss"]
    assert "other tokens" not in capsys.readouterr().err
    assert main(["view", "bytes", "가", "--with", model, "--no-run", "--output", "c.html"]) == 0
    assert "this one's text is of other tokens" in " ".join(capsys.readouterr().err.split())
