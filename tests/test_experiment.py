"""What a run learns from, and what it is judged by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pellucid.config import DataConfig, ModelConfig, RunConfig, TokenizerConfig
from pellucid.experiment import read_material
from pellucid.models import CausalLMConfig, Seq2SeqConfig


def settings(data: DataConfig, model: ModelConfig, normalise: str) -> RunConfig:
    model = replace(model, max_position_embeddings=130)
    return RunConfig(data=data, tokenizer=TokenizerConfig(normalise=(normalise,)), model=model)


@pytest.mark.parametrize(
    "name, model",
    [("p.tsv", Seq2SeqConfig()), ("p.tsv", CausalLMConfig()), ("t.txt", CausalLMConfig())],
)
def test_what_normalisation_makes_one_text_is_not_on_two_sides(
    name: str, model: ModelConfig, tmp_path: Path
) -> None:
    end = "\tx" if name == "p.tsv" else ""
    lines = [f"{word} {n}{end}\n" for n in range(101) for word in ("Ab", "aB", "ab")]
    (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    data = DataConfig(train=(tmp_path / name,), held_out=0.2)
    pairs = read_material(settings(data, model, "lowercase"))
    train, valid = (
        {(pair.source or pair.target).lower() for pair in side}
        for side in (pairs.train, pairs.valid)
    )
    assert valid
    assert not train & valid


def test_pairs_put_aside_that_are_learnt_from_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "p.tsv"
    file.write_text("".join(f"{n}\tA {n}\n" for n in range(7)), encoding="utf-8")
    data = DataConfig(train=(file,), valid=(file,), test=(file,))
    read_material(settings(data, Seq2SeqConfig(), "lowercase"))
    assert "7 of 7 validation pairs" in caplog.text
    assert "7 of 7 test pairs" in caplog.text
