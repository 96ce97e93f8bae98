"""Scores on held-out pairs, or given ones, and what the model card says of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.apps.cli.test_main import TINY, failed, pairs, pellucid


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings, a table of pairs under other names, and a run on them."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "tiny.toml").write_text(TINY, encoding="utf-8")
    table = "de,en\n" + pairs(131).replace("\t", ",")
    (folder / "own.csv").write_text(table, encoding="utf-8")
    own = ("--data.train", "own.csv", "--data.columns", "de", "en")
    failed(pellucid("train", "tiny.toml", *own, "--run", "run", cwd=folder), 0)
    return folder


def test_given_pairs_are_read_by_the_columns_of_the_run(place: Path, tmp_path: Path) -> None:
    scored = ("evaluate", "run", "--json", "--data")
    assert json.loads(pellucid(*scored, "own.csv", cwd=place).stdout)["pairs"] == 131
    turned = (place / "own.csv").read_text(encoding="utf-8").replace("de,en", "source,target")
    (tmp_path / "turned.csv").write_text(turned, encoding="utf-8")
    other = (*scored, tmp_path / "turned.csv")
    failed(pellucid(*other, cwd=place), 1, "turned.csv, line 1: no column 'de'")
    named = pellucid(*other, "--columns", "source", "target", cwd=place)
    assert json.loads(named.stdout)["pairs"] == 131


def test_a_card_keeps_the_scores_not_made_and_a_users_own_words(place: Path) -> None:
    card = place / "run" / "model" / "README.md"
    before = card.read_text(encoding="utf-8")
    assert "| PER |" in before
    failed(pellucid("evaluate", "run", "--metric", "none", cwd=place), 0)
    assert card.read_text(encoding="utf-8") == before
    mine = before.replace("## Use\n", "Ours, of 2026.\n\n## Use\n")
    stale = mine.replace("| PER | ", "| PER | not ")
    card.write_text(stale, encoding="utf-8")
    failed(pellucid("evaluate", "run", cwd=place), 0)
    assert card.read_text(encoding="utf-8") == mine


def test_a_card_that_cannot_be_read_is_left_and_one_that_is_missing_written(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card = place / "run" / "model" / "README.md"
    card.write_bytes("내 것".encode("cp949"))
    failed(pellucid("evaluate", "run", cwd=place), 0)
    assert card.read_bytes() == "내 것".encode("cp949")
    assert "README.md: the scores were not written into it: 'utf-8' codec" in caplog.text
    card.unlink()
    failed(pellucid("evaluate", "run", cwd=place), 0)
    written = card.read_text(encoding="utf-8")
    assert "| PER |" in written
    assert "## Settings" in written


def test_scores_are_printed_although_the_card_cannot_be_written(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    card = place / "run" / "model" / "README.md"
    before = card.read_bytes()
    (in_the_way := card.with_name(".tmp-README.md")).mkdir()
    done = pellucid("evaluate", "run", cwd=place)
    failed(done, 0)
    assert "PER" in done.stdout
    assert "README.md: cannot be written" in caplog.text
    assert card.read_bytes() == before
    in_the_way.rmdir()
    caplog.clear()
    card.unlink()
    card.mkdir()
    done = pellucid("evaluate", "run", cwd=place)
    failed(done, 0)
    assert "PER" in done.stdout
    assert "README.md: the scores were not written into it" in caplog.text


@pytest.mark.parametrize(
    ("verb", "option"), [(("evaluate", "run"), "--data"), (("train", "tiny.toml"), "--data.train")]
)
def test_data_that_would_be_dropped_without_a_word_is_refused(
    verb: tuple[str, str], option: str, place: Path
) -> None:
    done = pellucid(*verb, option, "a.tsv", f"{option}=b.tsv", cwd=place)
    failed(done, 2, f"{option} is given 2 times, and only the last would count")


def test_a_model_without_its_run_says_how_its_answers_are_scored(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (place / "pair.tsv").write_text("ab\ta b\n", encoding="utf-8")
    asked = ("evaluate", "run/model", "--data", "pair.tsv")
    assert "PER" in pellucid(*asked, cwd=place).stdout
    config = place / "run" / "model" / "config.json"
    known = config.read_text(encoding="utf-8")
    config.write_text(known.replace('"metric": "error_rates",', ""), encoding="utf-8")  # 0.1.0's
    asked = (*asked, "--accept-changes")
    assert "PER" not in pellucid(*asked, cwd=place).stdout
    assert (
        "run/model was trained without a metric; give --metric error_rates|letter_error_rates|bleu"
        in caplog.text
    )
    assert "PER" in pellucid(*asked, "--metric", "error_rates", cwd=place).stdout
    config.write_text(known, encoding="utf-8")


def test_models_that_answer_together_are_scored_and_leave_the_card(
    place: Path, tmp_path: Path
) -> None:
    shutil.copytree(place / "run", own := tmp_path / "own", ignore=lambda *_: ["README.md"])
    (card := own / "model" / "README.md").write_bytes(b"as it was")
    alone = json.loads(pellucid("evaluate", "run", "--json", cwd=place).stdout)
    together = ("evaluate", own, "--json", "--ensemble", "run", "run/model")
    scores = json.loads(pellucid(*together, cwd=place).stdout)
    for name in ("loss", "per", "wer", "pairs"):
        assert scores[name] == pytest.approx(alone[name], rel=1e-5)
    assert card.read_bytes() == b"as it was"
    other = ("evaluate", "run", "--ensemble", "g2p-en")
    failed(pellucid(*other, cwd=place), 2, "model 2 has other tokens than the first")


def test_a_model_of_another_seed_lowers_the_loss_of_both(place: Path) -> None:
    own = ("--data.train", "own.csv", "--data.columns", "de", "en")
    failed(pellucid("train", "tiny.toml", *own, "--seed", "5", "--run", "other", cwd=place), 0)

    def loss(run: str, *others: str) -> float:
        scored = pellucid("evaluate", run, "--json", *others, cwd=place)
        return float(json.loads(scored.stdout)["loss"])

    one, two, both = loss("run"), loss("other"), loss("run", "--ensemble", "other")
    assert one != two
    # −log is convex: that of the mean is at most the mean of both.
    assert both < (one + two) / 2
    assert both not in (one, two)


def test_pairs_that_were_added_to_the_training_are_not_scored(place: Path) -> None:
    (place / "more.tsv").write_text("de\ten\n" + "ab\tA B\n" * 7, encoding="utf-8")
    own = ("--data.train", "own.csv", "--data.columns", "de", "en", "--data.more", "more.tsv")
    failed(pellucid("train", "tiny.toml", *own, "--run", "with-more", cwd=place), 0)
    scored = pellucid("evaluate", "with-more", "--json", "--data", "own.csv", cwd=place)
    assert json.loads(scored.stdout)["pairs"] == 131


def test_a_model_that_may_have_seen_the_held_out_pairs_is_named(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pellucid("evaluate", "run", "--ensemble", "run", cwd=place)
    assert "too good" not in caplog.text
    pellucid("evaluate", "run", "--ensemble", "run/model", cwd=place)
    assert "run/model: not known to have been trained on the same split" in caplog.text
    texts = ("generate", "run", "--ensemble", "run", "ab")
    failed(
        pellucid(*texts, cwd=place),
        2,
        "--ensemble, which texts go before: ab: there is no such folder",
    )


def test_training_pairs_are_not_scored_as_held_out_after_another_split(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = pairs(60).splitlines(keepends=True)

    def split(first: list[str], second: list[str]) -> None:
        for name, some in (("train", first), ("valid", second)):
            (tmp_path / f"{name}.tsv").write_text("".join(some), encoding="utf-8")

    def scored() -> int:
        return int(json.loads(pellucid("evaluate", "run", "--json", cwd=tmp_path).stdout)["pairs"])

    split(lines[:40], lines[40:50])
    own = ("--data.train", "train.tsv", "--data.valid", "valid.tsv", "--run", "run")
    failed(pellucid("train", place / "tiny.toml", *own, cwd=tmp_path), 0)
    assert scored() == 10
    split(lines[:45], lines[40:50])  # what was held out is the same
    assert scored() == 10
    assert "its data files have changed" not in caplog.text
    split(lines[:40], lines[40:])
    assert scored() == 20
    assert "run: not scored on what it held out when it was trained" in caplog.text
    split(lines[10:], lines[:10])
    failed(pellucid("evaluate", "run", cwd=tmp_path), 1, "train.tsv: not what run was trained on")
    (tmp_path / "run" / "remembered.toml").unlink()  # as in a run of before there was one
    failed(pellucid("evaluate", "run", cwd=tmp_path), 1, "train.tsv: not what run was trained on")


OWN_METRIC = """
from pellucid.tasks.metric import Measured, Metric
from pellucid.tasks.metrics import METRICS

def compute(answers, references, intervals):
    long = sum(map(len, answers)) / len(answers)
    return Measured({"length": long}, {"length": long}, {"length": f"{long:.1f} characters"})

METRICS["length"] = Metric("length", "mean length", {"length": False}, compute)
"""


def test_a_run_with_a_metric_of_ones_own_is_scored_by_the_printed_command(place: Path) -> None:
    (place / "own.py").write_text(OWN_METRIC, encoding="utf-8")
    data = (
        "--data.train",
        "own.csv",
        "--data.columns",
        "de",
        "en",
        "--evaluation.metric",
        "length",
    )
    metric = ("--evaluation.metric", "length", "--import", "own.py")
    words = ("train", "tiny.toml", *data, *metric, "--run", "mine")
    said = run(*words, cwd=place).stdout
    scored = "pellucid evaluate mine --import own.py"
    assert scored in said
    assert " characters" in run(*scored.split()[1:], cwd=place).stdout
    kept = (place / "mine" / "remembered.toml").read_text(encoding="utf-8")
    assert "own.py" in kept
    assert "compute" not in kept
    refused = run("evaluate", "mine", cwd=place, code=2).stderr
    assert "got 'length'" in refused
    assert "; the run was started with --import own.py" in refused


def run(*words: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which has read no parts."""
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", *words],
        cwd=cwd, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done
