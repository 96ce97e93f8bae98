"""--precision bfloat16 on the CPU, from the command line."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from tests.apps.cli.test_main import TINY, failed, pairs, pellucid
from tests.kernels.compare import HAS_BFLOAT16

from pellucid.kernels.backend import bfloat16
from pellucid.system.weights import read_weights

BFLOAT16 = ("--precision", "bfloat16")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings and pairs; commands run with kernels."""
    monkeypatch.setattr("pellucid.reference", nullcontext)
    (tmp_path / "tiny.toml").write_text(TINY, encoding="utf-8")
    (tmp_path / "words.tsv").write_text(pairs(200), encoding="utf-8")
    return tmp_path


def train(place: Path, *options: str) -> dict[str, np.ndarray]:
    """Train in a run of its own; return the weights."""
    run = f"runs/{'-'.join(options) or 'plain'}"
    start = ("train", "tiny.toml", "--data.train", "words.tsv", "--run", run)
    failed(pellucid(*start, "--training.steps", "4", *options, cwd=place), 0)
    return read_weights(place / run / "model" / "model.safetensors")


@HAS_BFLOAT16
def test_a_run_in_bfloat16_repeats_and_is_resumed_in_float32(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, narrow = train(place), train(place, *BFLOAT16)
    again = train(place, *BFLOAT16, "--training.log-every", "1")
    assert all(weight.dtype == np.float32 for weight in narrow.values())
    assert any((plain[name] != weight).any() for name, weight in narrow.items())
    assert all((again[name] == weight).all() for name, weight in narrow.items())
    more = ("--training.steps", "6", "--accept-changes")
    resumed = pellucid("train", "--resume", "runs/--precision-bfloat16", *more, cwd=place)
    failed(resumed, 0)
    assert "the environment changed" in caplog.text
    assert "(precision: bfloat16 -> float32)" in caplog.text


def test_it_is_refused_before_anything_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bfloat16, "AVAILABLE", False)
    start = ("train", "tiny.toml", "--data.train", "words.tsv", *BFLOAT16)
    failed(pellucid(*start, cwd=place), 1, "AVX512-BF16", "leave out --precision bfloat16")
    assert not (place / "runs").exists()
