from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from pellucid.apps.cli import speedrun
from pellucid.apps.cli.main import main
from pellucid.core.errors import UserError

SMALL = """
[data]
train = ["{train}"]
held_out = 0.2
batch_tokens = 64
max_tokens = 11
[tokenizer]
kind = "char"
[model]
d_model = 8
num_attention_heads = 2
encoder_layers = 1
decoder_layers = 1
ffn_dim = 13
max_position_embeddings = 13
[training]
steps = 3
[evaluation]
metric = "error_rates"
"""


def runs(monkeypatch: pytest.MonkeyPatch, name: str, *scores: float) -> None:
    def run(recipe: str, seed: int) -> dict[str, Any]:
        return {"seed": seed, "seconds": 10.0 + seed, "steps": 7, "scores": {name: scores[seed]}}

    monkeypatch.setattr(speedrun, "_run", run)
    monkeypatch.setattr(speedrun, "read_material", lambda config: None)


@pytest.mark.parametrize(
    ("task", "score", "reached", "missed", "last", "mean"),
    [
        # missed: the same mean, but not surely below the bar
        ("g2p", "per", (0.100, 0.101, 0.099), (0.090, 0.110, 0.100), "PER 9.90%",
         "PER 10.00% (to reach: PER 10.50%; p = 0.0065)"),
        ("multi30k", "bleu_lower", (37.5, 37.6, 37.4), (35.5, 35.6, 35.4), "BLEU 37.40",
         "BLEU 37.50 (to reach: BLEU 36.50; p = 0.0017)"),
    ],
)  # fmt: skip
def test_a_record_needs_a_mean_surely_beyond_the_bar(
    task: str, score: str, reached: Any, missed: Any, last: str, mean: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    command = ["speedrun", task, "--seeds", "3", "--results", str(tmp_path / "r.jsonl")]
    runs(monkeypatch, score, *reached)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert f"seed 2: 12.0 s, 7 steps, {last}" in shown
    assert f"mean of 3 seeds: 11.0 s, {mean}" in shown
    runs(monkeypatch, score, *missed)
    assert main(command) == 1
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [line["scores"][score] for line in lines] == [*reached, *missed]


def test_a_run_trains_with_its_seed_and_scores_the_validation_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, recipe = tmp_path / "pairs.tsv", tmp_path / "mine.toml"
    data.write_text("".join(f"w{n}\t{n % 7}{n % 3}\n" for n in range(97)))
    recipe.write_text(SMALL.format(train=data))

    def timed(seed: int) -> dict[str, Any]:
        speedrun.timed(str(recipe), str(seed), str(time.time() - 100))
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    first, again, other = timed(2), timed(2), timed(5)
    assert (first["seed"], first["steps"], first["pairs"], other["seed"]) == (2, 3, 13, 5)
    assert first["loss"] == again["loss"] != other["loss"]
    assert first["seconds"] >= 100
    assert min(first["processor_seconds"], first["scores"]["per"]) > 0


def test_a_run_is_a_process_whose_caches_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> Any:
        assert command[3:5] == ["mine.toml", "3"]
        caches.append(env["NUMBA_CACHE_DIR"])
        assert not list(Path(caches[-1]).iterdir())
        Path(caches[-1], "kernel").touch()
        return subprocess.CompletedProcess(command, len(caches) - 1, 'said before\n{"per": 0.5}\n')

    monkeypatch.setattr(speedrun.subprocess, "run", run)
    assert speedrun._run("mine.toml", 3) == {"per": 0.5}
    with pytest.raises(UserError, match="the run of seed 3 failed"):
        speedrun._run("mine.toml", 3)


def test_one_seed_is_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speedrun", "g2p", "--seeds", "1"]) == 2
    assert "--seeds must be at least 2" in capsys.readouterr().err


def test_a_recipe_has_to_measure_the_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text(SMALL.format(train=tmp_path / "pairs.tsv"))
    assert main(["speedrun", "multi30k", "--recipe", str(recipe)]) == 2
    expected = "expected an evaluation.metric that has bleu_lower, got error_rates"
    assert expected in " ".join(capsys.readouterr().err.split())
