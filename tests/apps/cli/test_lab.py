"""`pellucid lab` as a user meets it: an error is reported once, before anything runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.apps.lab.small import STUDY, append_result, write_study

from pellucid.apps.cli.main import main
from pellucid.apps.lab.study_file import load_study, read_study, study_names
from pellucid.apps.lab.trial import failure, run_trial
from pellucid.data.pairs import Splits

Says = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def refused(capsys: Says, *arguments: str) -> tuple[int, str]:
    """Call `pellucid lab run`, which must not begin any run; return exit code and message."""
    code = main(["lab", "run", *arguments])
    assert not list(Path().glob("**/runs"))
    shown = capsys.readouterr()
    assert "done" not in shown.out
    return code, shown.err


def test_missing_data_is_reported_before_any_run(tmp_path: Path, capsys: Says) -> None:
    path = write_study(tmp_path)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace(f"{tmp_path.as_posix()}/pairs", "elsewhere/pairs"))
    code, shown = refused(capsys, str(path))
    assert code == 1
    assert f"elsewhere/pairs.tsv: there is no such file in {tmp_path}, where" in shown
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pairs.tsv").write_text("a\tb\nc\n")
    assert "pairs.tsv, line 2: expected 2 columns" in refused(capsys, str(path))[1]


def test_only_what_is_to_run_must_have_its_data(tmp_path: Path, capsys: Says) -> None:
    text = STUDY.replace('set.model.attention_scale = "none"', 'set.data.train = ["nowhere.tsv"]')
    path = write_study(tmp_path, text)
    code, shown = refused(capsys, str(path))
    assert code == 1
    assert f"nowhere.tsv: there is no such file in {tmp_path}" in shown
    options = ["--only", "linear", "--seeds", "0", "--folder", "out", "--workers", "1"]
    assert main(["lab", "run", str(path), *options]) == 0
    assert (
        f"write the report:  pellucid lab report {path} --folder out\n" in capsys.readouterr().out
    )


def test_data_changed_since_a_run_was_done_is_reported_before_any_other(
    tmp_path: Path, capsys: Says
) -> None:
    path, file = write_study(tmp_path), tmp_path / "lab" / "scale" / "results.jsonl"
    line = run_trial(read_study(path).trials()[0], tmp_path / "elsewhere")
    append_result(file, line)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text().replace("six six", "six six six"))
    for variant in ("sqrt", "linear"):  # what is done, and what would be compared with it
        code, shown = refused(capsys, str(path), "--only", variant, "--seeds", "0")
        assert code == 1
        assert "results.jsonl: sqrt with seed 0 was trained on other data (SHA-256 of its" in shown
        assert f"{line['data'][:12]}…, now " in shown
        assert "put the data back, use another results file and folder, or delete" in shown
    del line["data"]  # as older lines lack it, which cannot be compared
    file.unlink()
    append_result(file, line)
    assert main(["lab", "run", str(path), "--only", "sqrt", "--seeds", "0"]) == 0
    assert "1/1 done" in capsys.readouterr().out


def test_a_corpus_without_held_out_pairs_has_no_validation_loss(
    tmp_path: Path, capsys: Says, corpus: Callable[[str], Splits]
) -> None:
    corpus("chatterbot-ko")
    path = write_study(tmp_path)
    recipe = tmp_path / "recipe.toml"
    settings = recipe.read_text().replace(
        f'train = ["{tmp_path.as_posix()}/pairs.tsv"]', 'corpus = "chatterbot-ko"'
    )
    recipe.write_text(settings)
    code, shown = refused(capsys, str(path))
    assert code == 2
    assert "runs of sqrt do not write valid_loss, because they have no validation pairs" in shown
    assert "held_out" not in shown  # which is of files alone


def test_too_few_seeds_and_runs_of_other_settings_are_reported_before_it_runs(
    tmp_path: Path, capsys: Says
) -> None:
    path = write_study(tmp_path)
    main(["lab", "run", str(path), "--only", "none", "--seeds", "0", "--workers", "1"])
    shown = capsys.readouterr().out
    assert "note: 1 of 1 primary comparisons cannot exclude chance" in shown
    assert shown.index("6 seeds of each would be enough") < shown.index("1/1 done")
    assert "belong to no run" not in shown
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("epochs = 2", "epochs = 1"))
    main(["lab", "run", str(path), "--only", "none", "--seeds", "0", "--workers", "1"])
    assert "of the study as it is now: 1\n" in capsys.readouterr().out


def test_a_study_is_run_in_korean(tmp_path: Path, capsys: Says) -> None:
    path = write_study(tmp_path)
    options = ["--only", "none", "--seeds", "0", "--workers", "1"]
    main(["--lang", "ko", "lab", "run", str(path), *options])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scale: 실행 1개, 코어 하나로 약 0.1분"
    assert lines[1].startswith("참고: 주요 비교 1개 중 1개는 모든 쌍이 일치해도")
    assert lines[3:4] == ["1개 중 0개 완료"]
    assert lines[4].startswith("1개 중 1개 완료: none, 시드 0: train_loss ")
    assert lines[4].endswith("분)")
    assert lines[5] == f"보고서 만들기:  pellucid lab report {path}"


def test_failed_runs_of_earlier_settings_are_not_mentioned(tmp_path: Path, capsys: Says) -> None:
    path, file = write_study(tmp_path), tmp_path / "lab" / "scale" / "results.jsonl"
    gone = replace(read_study(path).trials()[0], id="0123456789ab")
    append_result(file, failure(gone, "oh", 0.0))
    options = ["--only", "none", "--seeds", "0", "--workers", "1"]
    assert main(["lab", "run", str(path), *options]) == 0
    assert main(["lab", "report", str(path)]) == 0
    assert "belong to no run" not in capsys.readouterr().out
    assert "belong to no run" not in (file.parent / "report.md").read_text()


def test_a_score_to_monitor_that_there_will_not_be_is_reported_before_any_run(
    tmp_path: Path, capsys: Says
) -> None:
    sets = 'set.training.monitor = "bleu"\nset.evaluation.metric = "error_rates"\n'
    path = write_study(tmp_path, STUDY.replace("[changes.none]\n", f"[changes.none]\n{sets}"))
    code, shown = refused(capsys, str(path))
    assert code == 2
    assert "none: monitor = 'bleu' is not a held-out score; there is loss, per, wer" in shown


def test_names_and_seeds_that_are_no_run_together(tmp_path: Path, capsys: Says) -> None:
    path = write_study(tmp_path)
    code, shown = refused(capsys, str(path), "--only", "none", "--seeds", "2")
    assert code == 2
    assert "no run of none has seed 2" in shown
    code, shown = refused(capsys, str(path), "--only", "none", "--only", "linear")
    assert code == 2
    assert "--only is given 2 times" in shown


def test_stored_results_count_as_done_in_the_repository(
    tmp_path: Path, capsys: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["lab", "list", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line[:1].isalpha()}
    assert rows["exponent"][1:3] == ["132", "132"]
    assert rows["article-003"][1:3] == ["25", "25"]


def test_a_guess_is_made_before_the_runs_are_shown(
    tmp_path: Path, capsys: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    guess = ["lab", "guess", "norm-place", "--folder", str(tmp_path)]
    assert main(guess) == 0
    asked = capsys.readouterr().out
    assert "claim: norms before the sublayer learn better" in asked
    assert "0.0307" not in asked
    assert main([*guess, "--answer", "lower", "--sure", "90"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("wrong: higher by 0.0307 nats per token (interval +0.0252")
    assert "80 to 100 % sure: 0 of 1 right" in shown
    assert "claim: norms after the sum need the warm-up" in shown
    for answer in ("higher", "higher"):
        assert main([*guess, "--answer", answer, "--sure", "79"]) == 0
    shown = capsys.readouterr().out
    assert "60 to 79 % sure: 2 of 2 right" in shown
    assert "no question of this study is left" in shown
    before = (tmp_path / "guesses.json").read_bytes()
    assert main([*guess, "--answer", "lower"]) == 0
    assert (tmp_path / "guesses.json").read_bytes() == before


def test_runs_that_differ_by_seed_are_mixed(
    tmp_path: Path, capsys: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    guess = ["lab", "guess", "heads-and-ffns", "--folder", str(tmp_path), "--answer", "mixed"]
    assert main([*guess, "--sure", "34"]) == 0
    assert capsys.readouterr().out.startswith("right: no difference shown")


def test_a_guess_that_cannot_be_kept_is_refused(tmp_path: Path, capsys: Says) -> None:
    path = write_study(tmp_path)
    assert main(["lab", "guess", str(path)]) == 1
    assert "no run of scale is done yet" in capsys.readouterr().err
    for sure in ("33", "101"):
        assert main(["lab", "guess", str(path), "--sure", sure]) == 2
        assert f"--sure {sure}: expected 34 to 100 percent" in capsys.readouterr().err
    append_result(
        tmp_path / "lab" / "scale" / "results.jsonl",
        run_trial(read_study(path).trials()[0], tmp_path / "elsewhere"),
    )
    for text in ("[]", "{", '{"a": {"sure": "x"}}'):
        (tmp_path / "lab" / "guesses.json").write_text(text)
        assert main(["lab", "guess", str(path), "--answer", "lower"]) == 1
        assert "guesses.json cannot be read; delete it" in capsys.readouterr().err
        assert (tmp_path / "lab" / "guesses.json").read_text() == text


@pytest.mark.parametrize(("name", "language"), [("lab.md", "en"), ("lab.ko.md", "ko")])
def test_the_page_shows_a_question_as_it_is_asked(
    name: str, language: str, tmp_path: Path, capsys: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    main(["--lang", language, "lab", "guess", "norm-place", "--folder", str(tmp_path)])
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert f"lab guess norm-place\n{capsys.readouterr().out}```" in text
    questions = sum(len(load_study(study).plan.primary) for study in study_names())
    assert re.search(rf"\b{questions}(?: questions|개)", text)


def test_a_results_file_that_cannot_be_read_is_marked_in_its_row(
    tmp_path: Path, capsys: Says
) -> None:
    bad = tmp_path / "lab" / "exponent" / "results.jsonl"
    bad.parent.mkdir(parents=True)
    bad.write_text("{\n")
    trial = load_study("article-003").trials()[0]
    good = tmp_path / "lab" / "article-003" / "results.jsonl"
    append_result(good, failure(trial, "out of luck", 0.1))
    assert main(["lab", "list"]) == 1
    shown = capsys.readouterr()
    rows = {line.split()[0]: line.split() for line in shown.out.splitlines() if line[:1].isalpha()}
    planned = {name: str(len(load_study(name).trials())) for name in ("exponent", "article-003")}
    assert rows["exponent"][1:3] == [planned["exponent"], "unreadable"]
    assert rows["article-003"][1:3] == [planned["article-003"], "0"]
    assert "results.jsonl, line 1: is damaged" in shown.err


def test_the_runs_are_done_by_an_executor_of_the_users_own(
    tmp_path: Path, capsys: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_cluster.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "made = []\n"
        "def executor():\n"
        "    made.append(ThreadPoolExecutor(1))\n"
        "    return made[-1]\n"
        "def nothing():\n"
        "    return None\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(sys, "path", sys.path.copy())
    study = str(write_study(tmp_path))
    for given, code, words in (
        ("my_cluster", 2, "expected MODULE:FUNCTION"),
        ("my_cluste:executor", 2, "No module named 'my_cluste'; expected MODULE:FUNCTION"),
        ("my_cluster:executer", 2, "no attribute 'executer'; expected MODULE:FUNCTION"),
        ("my_cluster:nothing", 2, "it gives None; expected MODULE:FUNCTION of a function"),
    ):
        found = refused(capsys, study, "--executor", given)
        assert found[0] == code
        assert words in found[1]
    both = refused(capsys, study, "--executor", "my_cluster:executor", "--workers", "1")
    assert both == (2, both[1])
    assert "give --workers or --executor, not both" in both[1]
    some = ["--only", "linear", "--seeds", "0", "--executor", "my_cluster:executor"]
    assert main(["lab", "run", study, *some]) == 0
    assert "1/1 done: linear, seed 0" in capsys.readouterr().out
    assert len(sys.modules["my_cluster"].made) == 1


def test_a_study_without_results_here_has_a_dash_and_not_0(capsys: Says) -> None:
    assert main(["lab", "list"]) == 0
    shown = capsys.readouterr().out
    assert "done here" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("exponent "))
    assert row[1:3] == [str(len(load_study("exponent").trials())), "–"]
