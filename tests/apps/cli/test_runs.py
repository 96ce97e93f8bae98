"""`pellucid runs`, and the curves of `pellucid plot`: runs next to each other."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from pellucid.apps.cli.main import main
from pellucid.apps.cli.runs import TICKS, WIDEST, compared, differences, sparkline
from pellucid.core.settings import to_mapping
from pellucid.training.config import RunConfig

Capture = pytest.CaptureFixture[str]


def write_run(folder: Path, lr: float, losses: list[float], **model: Any) -> Path:
    """A run as it is while it trains: settings, and a validation every 10 steps."""
    folder.mkdir(parents=True)
    settings = to_mapping(RunConfig())
    settings["training"]["schedule"]["lr"] = lr
    settings["model"] |= model
    settings["data"]["sha256"] = folder.name
    (folder / "config.toml").write_bytes(tomli_w.dumps(settings).encode())
    records: list[dict[str, Any]] = []
    for i, loss in enumerate(losses, 1):
        records.append({"event": "trained", "step": 10 * i, "loss": loss + 1, "seconds": 30.0 * i})
        best = loss == min(losses[:i])
        scores = {"per": loss / 10}
        records.append({"event": "validated", "step": 10 * i, "loss": loss, "best": best,
                        "seconds": 1.0, "scores": scores})  # fmt: skip
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "150")
    write_run(tmp_path / "runs" / "slow", 0.001, [3.0, 2.0, 1.0, 1.5])
    write_run(tmp_path / "runs" / "[wide]", 0.002, [2.5, 2.25], d_model=512)
    (tmp_path / "runs" / "other").mkdir()
    return tmp_path / "runs"


def test_runs_are_compared(folder: Path, capsys: Capture) -> None:
    assert main(["runs", str(folder)]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    heads = ["run", "settings that differ", "steps", "minutes", "best held-out scores", "loss"]
    assert " ".join(rows[0]) == " ".join(heads)
    best = ["loss", "2.250,", "PER", "22.5", "%", "█▁"]
    assert rows[1] == ["[wide]", "model.d_model=512", "20", "1.0", *best]
    assert rows[2] == ["training.schedule.lr=0.002"]
    best = ["loss", "1.000,", "PER", "10.0", "%", "█▄▁▂"]
    assert rows[3] == ["slow", "model.d_model=256", "40", "2.0", *best]
    assert "sha256" not in shown
    assert "other" not in shown


def test_one_run_differs_in_nothing(folder: Path, capsys: Capture) -> None:
    assert main(["runs", str(folder / "slow")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["slow", "40"]


def test_a_corpus_that_files_replace_is_not_listed(tmp_path: Path) -> None:
    data = {"corpus": "g2p-en", "split": "words"}
    for name, train in (("own", ["a.tsv"]), ("corpus", [])):
        config = write_run(tmp_path / name, 0.001, [1.0]) / "config.toml"
        settings = tomllib.loads(config.read_text(encoding="utf-8"))
        settings["data"] |= data | {"train": train}
        config.write_bytes(tomli_w.dumps(settings).encode())
    runs = [tmp_path / "own", tmp_path / "corpus"]
    assert list(differences(runs)) == [
        ["data.train=a.tsv"],
        ["data.corpus=g2p-en", "data.split=words"],
    ]


def test_a_notebook_shows_the_table(folder: Path) -> None:
    shown = compared(folder)._repr_mimebundle_([], [])["text/html"]
    assert "slow" in shown
    assert "d_model=512" in shown


def test_a_folder_without_runs_is_named(tmp_path: Path, capsys: Capture) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert main(["runs", str(path)]) == 1
        assert f"{path}: there is no run here" in capsys.readouterr().err


def test_a_long_curve_is_thinned_and_a_level_one_is_low() -> None:
    curve = sparkline([float(i) for i in range(500)])
    assert len(curve) == WIDEST
    assert (curve[0], curve[-1]) == (TICKS[0], TICKS[-1])
    assert sparkline([2.0, 2.0]) == TICKS[0] * 2
    assert sparkline([]) == ""


def test_curves_are_drawn_from_runs(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "curves.svg"
    named = [str(folder / "slow"), str(folder / "[wide]")]
    assert main(["plot", "curves", *named, "--output", str(path), "--lang", "en"]) == 0
    drawn = path.read_text(encoding="utf-8")
    for text in ("Learning curves", "PER", "nats per token", *named):
        assert text in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curves"], "which runs? Use `pellucid plot curves RUN ...`"),
        (["softmax", "runs/a"], "softmax is not drawn from runs: leave runs/a out"),
        (["curves", "nowhere"], "nowhere: there is no run here with a metrics.jsonl"),
    ],
)
def test_wrong_use_of_curves_is_named(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["plot", *arguments]) > 0
    assert message in capsys.readouterr().err
