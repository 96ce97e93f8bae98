"""benchmarks/step.py: what it prints, a step's operations, the rates, and where its time goes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import step as bench
from tests.kernels.compare import HAS_BFLOAT16
from tests.models import test_seq2seq

from pellucid import kernels
from pellucid.kernels.backend import bfloat16
from pellucid.kernels.backend.matmul import BFLOAT16, BFLOAT16_TILES, Products
from pellucid.models import Seq2Seq

STEP: dict[str, Any] = {
    "length": 50, "milliseconds": 512.3, "tokens a second": 12345,
    "utilisation": 0.51, "shares": {"attention": 0.2, "Python": 0.1},
    "times PyTorch's speed": [2.41, 2.5, 2.63],
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Replace the measurements; the dictionary tells whether PyTorch took part."""
    asked: dict[str, bool] = {}

    def measure_step(length: int, rounds: int, peer: bool, precision: str) -> dict[str, Any]:
        asked["peer"] = peer
        return {**STEP, "length": length}

    monkeypatch.setattr(bench, "measure_step", measure_step)
    monkeypatch.setattr(bench, "version", lambda name: "2.13.0")
    monkeypatch.setattr(bench, "load", lambda: 0.0)
    return asked


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"N": 3, "V": 53, "E": 24, "H": 2, "F": 31, "LAYERS": 1}.items():
        monkeypatch.setattr(bench, name, size)


def test_tables(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    bench.main([])
    printed = capsys.readouterr().out
    for shown in ("length 50", "length 12", "512.3", "12,345", "51%", "2.50 (2.41–2.63)"):
        assert shown in printed
    for shown in ("time in attention", "20%"):
        assert shown in printed
    assert measured["peer"]
    assert "not installed" not in printed


def test_it_says_what_it_measures(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    bench.main(["--json"])
    shown = capsys.readouterr()
    for what in ("training steps of length 50", "training steps of length 12"):
        assert what in shown.err
    assert json.loads(shown.out)


def test_without_pytorch_it_says_so(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    bench.main([])
    printed = capsys.readouterr().out
    assert "PyTorch is not installed" in printed
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
    bench.main([])
    assert ("kept 1.7 processors busy" in capsys.readouterr().out) == (busy > 1)


def test_json(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "find_spec", lambda name: name)
    bench.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["length"] for row in found["step"]] == [50, 12]
    assert found["environment"]["torch"] == "2.13.0"
    assert found["environment"]["threads"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    "compared",
    [False, pytest.param(True, marks=pytest.mark.oracle("torch"))],
    ids=["alone", "torch"],
)
def test_a_step_is_measured(compared: bool) -> None:
    row = bench.measure_step(7, 2, compared)
    assert row["milliseconds"] > 0
    assert row["tokens a second"] > 0
    assert ("times PyTorch's speed" in row) == compared


@pytest.mark.usefixtures("tiny")
def test_the_figures_of_a_step_follow_from_the_times_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    times, shares = cycle((2.0, 5.0)), {"Python": 1.0}  # ours takes 2 seconds, PyTorch's 5
    monkeypatch.setattr(bench, "timed", lambda step: next(times))
    monkeypatch.setattr(bench, "flops", lambda n, length: {(3, 7): 8e9}[n, length])
    monkeypatch.setattr(bench, "multiply_add_rate", lambda products: 8e9)
    monkeypatch.setattr(bench, "shares", lambda step: shares)
    for name in ("pellucid_step", "torch_step"):
        monkeypatch.setattr(bench, name, lambda *ids, **options: lambda: 0.0)
    assert bench.measure_step(7, 3, True) == {
        "length": 7,
        "milliseconds": 2000.0,
        "tokens a second": 21,  # 3 pairs, 7 tokens a side, in 2 seconds
        "GFLOP/s": 4.0,
        "GFLOP/s of multiply-adds alone": 8.0,
        "utilisation": 0.5,
        "shares": shares,
        "PyTorch's milliseconds": 5000.0,
        "times PyTorch's speed": [2.5, 2.5, 2.5],
        "the most that this ratio could be": 5.0,
    }


@pytest.mark.usefixtures("tiny")
@pytest.mark.oracle("torch")
def test_a_step_of_pytorch_learns_what_ours_does() -> None:
    ids = bench.random_ids(7)
    ours, theirs = bench.pellucid_step(*ids), bench.torch_step(*ids)
    losses = [(ours(), theirs()) for _ in range(200)]
    assert losses[0] == pytest.approx([np.log(53)] * 2, rel=0.5)
    assert max(losses[-1]) < 0.8 * min(losses[0])


@pytest.mark.usefixtures("tiny")
@HAS_BFLOAT16
@pytest.mark.parametrize(
    "compared",
    [False, pytest.param(True, marks=pytest.mark.oracle("torch"))],
    ids=["alone", "torch"],
)
def test_a_step_is_measured_in_bfloat16(compared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Products] = []
    monkeypatch.setattr(Products, "empty_panels", watched(called))
    row = bench.measure_step(7, 2, compared, "bfloat16")
    assert {BFLOAT16, BFLOAT16_TILES} & set(called)
    assert row["milliseconds"] > 0
    assert ("times PyTorch's speed" in row) == compared


def watched(called: list[Products]) -> Callable[..., Any]:
    """Return `Products.empty_panels` that notes whose panels were made."""
    plain = Products.empty_panels

    def empty_panels(self: Products, k: int, n: int) -> Any:
        called.append(self)
        return plain(self, k, n)

    return empty_panels


def test_bfloat16_is_refused_before_anything_is_measured(
    measured: dict[str, bool], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bfloat16, "AVAILABLE", False)
    with pytest.raises(SystemExit):
        bench.main(["--precision", "bfloat16"])
    assert "AVX512-BF16" in capsys.readouterr().err
    assert not measured


def test_nothing_is_measured_in_no_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--rounds", "0"])
    assert "--rounds must be at least 1, got 0" in capsys.readouterr().err


@pytest.mark.usefixtures("tiny")
def test_shares_are_parts_of_one_whole() -> None:
    step = bench.pellucid_step(*bench.random_ids(7))
    step()
    shares = bench.shares(step)
    assert set(shares) == {*bench.KINDS.values(), "elementwise", "Python"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 < share < 1 for share in shares.values())


def test_no_kernel_that_multiplies_counts_as_elementwise() -> None:
    files = Path(kernels.__file__).parent.glob("*.py")
    multiply = {
        file.stem for file in files
        if re.search(r"multiply_rows|import .*\bproduct\b", file.read_text("utf-8"))
    }  # fmt: skip
    assert {"linear", "flash", "linear_cross_entropy"} <= multiply
    assert multiply <= set(bench.KINDS)


@pytest.mark.usefixtures("tiny")
def test_random_ids_hold_no_padding_and_one_target_token_more() -> None:
    source, target = bench.random_ids(7)
    assert (source.shape, target.shape) == ((3, 7), (3, 8))
    assert min(source.min(), target.min()) > 2
    assert max(source.max(), target.max()) < 53


@pytest.mark.usefixtures("tiny")
def test_operations_of_a_step_are_those_of_its_products() -> None:
    rows, e, f = 3 * 7, 24, 31
    encoder = 4 * e * e + 2 * e * f
    decoder = 8 * e * e + 2 * e * f
    scores = 3 * 7 * 2 * e  # q·k and the weighted sum, in the three attentions
    assert bench.flops(3, 7) == 3 * 2 * rows * (encoder + decoder + scores + e * 53)


def test_operations_of_any_lengths_are_those_of_the_products() -> None:
    base = replace(test_seq2seq.BASE, encoder_layers=2, decoder_layers=3)
    e, f, v = base.d_model, base.ffn_dim, base.target_vocab_size
    source, target = [3, 5], [7, 2]
    encoder = 2 * (8 * (4 * e * e + 2 * e * f) + (9 + 25) * 2 * e)
    decoder = 3 * (9 * (6 * e * e + 2 * e * f) + 8 * 2 * e * e + (49 + 4 + 21 + 10) * 2 * e)
    found = bench.forward_operations(Seq2Seq(base), {"encoder": source, "decoder": target})
    assert found == 2 * (encoder + decoder + 9 * e * v)


def test_a_system_that_does_not_say_how_busy_it_is_counts_as_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.getloadavg", raising=False)
    assert bench.load() == 0.0
