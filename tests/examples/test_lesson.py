"""What the examples share: their options, the settings they train with, stored results."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from lesson import Lesson, final_loss, stored_runs, trained_variances
from pellucid.apps.cli.main import main
from pellucid.apps.teach import pictures

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "setting",
    [
        "attention-scale", "embedding-scale", "position-scale", "attention-init",
        "num-attention-heads", "ffn-before", "ffn-after", "ffn-dim",
    ],
)  # fmt: skip
def test_the_articles_settings_are_options_of_train(
    setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "chat-ko-small", "--help-all"])
    assert f"--model.{setting} " in capsys.readouterr().out


def test_fewer_steps_than_an_epoch_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["article.py", "--steps", "9"])
    with pytest.raises(SystemExit):
        Lesson("About")
    assert "--steps must be at least 10, one epoch; got 9" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["article.py", "--model", str(tmp_path / "chat")])
    with pytest.raises(SystemExit, match=r"--model: .*chat: there is no such folder"):
        Lesson("About").chatbot()


def test_a_notebook_takes_no_options_and_displays_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    fake = SimpleNamespace(Image=lambda path: path, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr("sys.argv", ["kernel", "-f", "connection.json"])
    monkeypatch.chdir(tmp_path)
    lesson = Lesson("About")
    lesson.show("softmax", pictures.softmax)
    assert shown == [str(lesson.output / "softmax.png")]
    assert Path(shown[0]).read_bytes().startswith(b"\x89PNG")


def test_the_clock_ends_no_run_that_is_compared_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["article.py", "--output", str(tmp_path), "--steps", "97"])
    given: list[str] = []
    monkeypatch.setattr("lesson.main", lambda arguments: given.extend(arguments) or 0)
    assert Lesson("About").train("short").name == "short-97-steps"
    (minutes,) = [float(a.partition("=")[2]) for a in given if a.startswith("--training.minutes")]
    assert "--training.steps=97" in given
    assert minutes > 24 * 60


def test_the_final_loss_is_that_of_the_last_epoch(tmp_path: Path) -> None:
    events = [("epoch_ended", 3.0), ("checkpoint", 1.0), ("epoch_ended", 2.0), ("ended", 0.0)]
    lines = [json.dumps({"event": event, "loss": loss}) for event, loss in events]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert final_loss(tmp_path) == 2.0


def test_stored_runs_are_found_from_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results" / "studies").mkdir(parents=True)
    path = tmp_path / "results" / "studies" / "article-003.jsonl"
    path.write_text('{"status": "done", "seed": 1}\n{"status": "failed"}\n', encoding="utf-8")
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    assert stored_runs("-003") == [{"status": "done", "seed": 1}]


def test_without_the_checkout_the_runs_are_those_that_the_articles_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    here = {study: stored_runs(study) for study in ("-003", "exponent", "heads-and-ffns")}
    over_steps, at_the_end = trained_variances()
    monkeypatch.chdir(tmp_path)
    for study, runs in here.items():
        kept = stored_runs(study)
        assert [(run["change"], run["seed"]) for run in kept] == [
            (run["change"], run["seed"]) for run in runs
        ]
        for one, whole in zip(kept, runs, strict=True):
            for name, value in one["metrics"].items():
                assert value == article_runs().short(whole["metrics"].get(name))
    assert trained_variances()[0].keys() == over_steps.keys()
    for kept_curves, curves in zip(
        trained_variances()[0].values(), over_steps.values(), strict=True
    ):
        assert np.allclose(np.array(kept_curves), np.array(curves), rtol=1e-6)
    assert np.allclose(
        *(next(iter(each.values())) for each in (trained_variances()[1], at_the_end))
    )
    assert capsys.readouterr().out == ""
    assert stored_runs("nothing") == []
    assert "neither results/studies/*nothing.jsonl nor runs.json" in capsys.readouterr().out


def article_runs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("article_runs", ROOT / "scripts/article_runs.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_kept_runs_are_up_to_date() -> None:
    kept = (ROOT / "examples" / "runs.json").read_text(encoding="utf-8")
    assert kept == article_runs().written(), "run: python scripts/article_runs.py"
