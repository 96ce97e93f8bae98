"""`pellucid bench`: what it prints, and what it does without data or PyTorch."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from pellucid.apps.cli import bench
from pellucid.apps.cli.benchmark import step
from pellucid.core.errors import UsageError, UserError

STEP: dict[str, Any] = {
    "length": 50, "milliseconds": 512.3, "tokens a second": 12345,
    "utilisation by Pellucid's product": 0.51, "shares": {"attention": 0.2, "Python": 0.1},
    "times PyTorch's speed": [2.41, 2.5, 2.63],
}  # fmt: skip
DATA = {"data": "g2p-demo", "useful tokens a second": 45678}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Replace the measurements; the dictionary tells whether PyTorch took part."""
    asked: dict[str, bool] = {}

    def measure_step(length: int, rounds: int, peer: bool) -> dict[str, Any]:
        asked["peer"] = peer
        return {**STEP, "length": length}

    monkeypatch.setattr(bench, "measure_step", measure_step)
    monkeypatch.setattr(bench, "measure_data", lambda task, *_: DATA)
    monkeypatch.setattr(bench, "tasks", lambda: [SimpleNamespace(name="g2p-demo")])
    monkeypatch.setattr(bench, "version", lambda name: "2.13.0")
    monkeypatch.setattr(bench, "load", lambda: 0.0)
    return asked


def test_tables(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "installed", lambda: True)
    assert bench.bench() == 0
    printed = capsys.readouterr().out
    for shown in ("length 50", "length 12", "512.3", "12,345", "51%", "2.50 (2.41–2.63)"):
        assert shown in printed
    for shown in ("time in attention", "20%", "g2p-demo", "45,678"):
        assert shown in printed
    assert measured["peer"]
    assert "not installed" not in printed


def test_it_says_what_it_measures(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "installed", lambda: False)
    assert bench.bench(json=True) == 0
    shown = capsys.readouterr()
    for what in ("training steps of length 50", "training steps of length 12", "on g2p-demo"):
        assert what in shown.err
    assert json.loads(shown.out)


def test_without_pytorch_it_says_so(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "installed", lambda: False)
    assert bench.bench(data=False) == 0
    printed = capsys.readouterr().out
    assert "PyTorch is not installed" in printed
    assert "45,678" not in printed
    assert not measured["peer"]


@pytest.mark.parametrize("busy", [0.3, 1.7])
def test_a_busy_machine_is_named(
    busy: float,
    measured: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "available", lambda: 2)
    monkeypatch.setattr(bench, "load", lambda: busy)
    bench.bench()
    assert ("kept 1.7 processors busy" in capsys.readouterr().out) == (busy > 1)


def test_json(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "installed", lambda: True)
    assert bench.bench(json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in found["step"]] == [50, 12]
    assert found["data"] == [DATA]
    assert found["environment"]["torch"] == "2.13.0"
    assert found["environment"]["threads"]


def test_missing_data_is_named_and_nothing_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing() -> None:
        raise UserError("misaki==0.9.4: cannot be downloaded")

    def downloads(name: str) -> None:
        raise AssertionError(f"{name} would be downloaded")

    monkeypatch.delenv("PELLUCID_DATA", raising=False)
    monkeypatch.setattr(bench, "demo_task", missing)
    monkeypatch.setattr(bench, "article_task", downloads)
    with caplog.at_level(logging.WARNING):
        assert bench.tasks() == []
    assert "g2p-demo is not measured: misaki==0.9.4: cannot" in caplog.text


def test_a_step_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"N": 3, "V": 53, "E": 24, "H": 2, "F": 31, "LAYERS": 1}
    for name, size in sizes.items():
        monkeypatch.setattr(step, name, size)
    tiny = step.article_config(53, 53, layers=1)
    monkeypatch.setattr(bench, "N", 3)
    monkeypatch.setattr(bench, "random_ids", lambda length: step.random_ids(length, 53))
    monkeypatch.setattr(bench, "pellucid_step", lambda s, t: step.pellucid_step(s, t, tiny))
    row = bench.measure_step(7, 2, compared=False)
    assert row["milliseconds"] > 0
    assert row["tokens a second"] > 0
    assert "times PyTorch's speed" not in row


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_nothing_is_measured_in_no_time(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"--{next(iter(wrong))} must be"):
        bench.bench(**wrong)
