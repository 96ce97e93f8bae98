"""The results file: no line is lost, and none is believed unchecked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.apps.lab.small import append_result

from pellucid.apps.lab.results import open_results, read_results
from pellucid.apps.lab.study_file import load_study
from pellucid.core.errors import UserError

STUDIES = Path(__file__).parents[3] / "results" / "studies"
HEAD = {"format": 1, "study": "s", "change": "c", "seed": 3, "id": "a", "ended": "now"}
FAILED = {**HEAD, "status": "failed", "error": "oh", "minutes": 0.5}
PROBE: dict[str, Any] = {
    "step": 7,
    **{name: {} for name in ("attention", "by_keys", "lengths", "gradients", "dead")},
}
CURVE = {"epoch": [1.0], "train": [1.5], "train_token": [0.5], "valid": [None]}
DONE: dict[str, Any] = {
    **HEAD,
    "status": "done",
    "metrics": {"train_loss": 1.5, "valid_loss": None},
    "curve": CURVE,
    "probes": [PROBE],
    "steps": 7,
    "minutes": 2,
    "parameters": 11,
    "vocabulary": [5, 13],
    "pairs": 17,
    "answer_tokens": 2.5,
    "settings": {},
    "environment": {},
    "machine": {},
}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_half_written_last_line_gives_way_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    append_result(file, FAILED)
    with file.open("a") as f:
        f.write('{"format": 1, "id": "b"')
    assert list(read_results(file)) == ["a"]
    append_result(file, {**DONE, "id": "c"})
    assert list(read_results(file)) == ["a", "c"]
    file.write_text('{"id": \n' + file.read_text())
    with pytest.raises(UserError, match=r"results.jsonl, line 1: is damaged"):
        read_results(file)


def test_a_run_that_is_done_stays_done_whatever_failed_after_it(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", FAILED, DONE, FAILED)
    assert read_results(file)["a"]["status"] == "done"


def test_a_last_line_that_only_lacks_its_end_is_a_line(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", FAILED)
    file.write_text(file.read_text() + json.dumps({**DONE, "id": "b"}))  # as editors leave it
    assert list(read_results(file)) == ["a", "b"]
    append_result(file, {**DONE, "id": "c"})
    assert list(read_results(file)) == ["a", "b", "c"]


def test_an_empty_line_as_taking_one_out_by_hand_leaves_is_none(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", FAILED)
    file.write_text("\n" + file.read_text() + " \n\n")
    append_result(file, {**DONE, "id": "b"})
    assert list(read_results(file)) == ["a", "b"]
    file.write_text(file.read_text() + "{\n")
    with pytest.raises(UserError, match=r"results.jsonl, line 6: is damaged"):
        read_results(file)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("buy milk")
    with pytest.raises(UserError, match=r"it does not end with a line of results: b'buy milk'"):
        append_result(file, DONE)
    with pytest.raises(UserError, match=r"notes.txt"), open_results(file):
        pass
    assert file.read_text() == "buy milk"


def test_results_of_another_version_are_named(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", {"format": 7, "id": "a"})
    with pytest.raises(UserError, match="line 1: results format 7, this Pellucid reads 1"):
        read_results(file)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.jsonl")), ids=lambda path: path.name)
def test_what_was_measured_before_is_read_and_belongs_to_its_study(path: Path) -> None:
    assert len(read_results(path)) == len(path.read_text(encoding="utf-8").splitlines())
    study = load_study(path.stem)
    assert {trial.id for trial in study.trials()} >= read_results(path).keys()


def test_a_line_may_say_what_data_it_is_of(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", {**DONE, "data": "ab"})
    assert read_results(file)["a"]["data"] == "ab"


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        *[
            ({k: v for k, v in DONE.items() if k != key}, f"{key}: expected .*, it is missing")
            for key in DONE
            if key not in ("format", "status")
        ],
        ({k: v for k, v in FAILED.items() if k != "status"}, "expected done or failed, got None"),
        ({k: v for k, v in FAILED.items() if k != "error"}, "error: expected text, it is missing"),
        ({**FAILED, "status": "maybe"}, "status: expected done or failed, got 'maybe'"),
        ({**DONE, "probes": {}}, r"probes: expected a list, got {}"),
        ({**FAILED, "status": ["done"]}, r"status: expected done or failed, got \['done'\]"),
        ({**FAILED, "id": 7}, "id: expected text, got 7"),
        ({**FAILED, "seed": "3"}, "seed: expected a whole number, got '3'"),
        ({**FAILED, "minutes": None}, "minutes: expected a number, got None"),
        ({**DONE, "curve": {**CURVE, "train": ["1.5"]}}, "curve.train: expected numbers"),
        ({**DONE, "curve": {k: CURVE[k] for k in CURVE if k != "epoch"}}, "curve.epoch: expected"),
        ({**DONE, "metrics": {"train_loss": "1.5"}}, "metrics: expected numbers"),
        ({**DONE, "metrics": {"train_loss": float("nan")}}, "not a line of results"),
        ({**DONE, "probes": [3]}, "probes: step: expected numbers"),
        ({**DONE, "vocabulary": []}, "vocabulary: expected numbers"),
        ([1], "not a line of results"),
        ("text", "not a line of results"),
    ],
)
def test_a_line_with_a_wrong_field_is_named(tmp_path: Path, line: Any, reported: str) -> None:
    file = write(tmp_path / "results.jsonl", {**FAILED, "id": "b"}, line)
    with pytest.raises(UserError, match=rf"jsonl, line 2: is damaged \(.*{reported}.*; delete it"):
        read_results(file)


def test_the_error_of_a_damaged_line_says_what_deleting_it_does(tmp_path: Path) -> None:
    remedy = "delete it; its run is then read from its folder, or done again"
    with pytest.raises(UserError, match=rf"line 1: is damaged .*; {remedy}$"):
        read_results(write(tmp_path / "results.jsonl", 7))


@pytest.mark.parametrize("text", [b'{"id": "\xff"}', b"[" * 100_000, b"\xef\xbb\xbf{}"])
def test_what_is_no_json_is_named(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "results.jsonl"
    file.write_bytes(text + b"\n")
    with pytest.raises(UserError, match=r"jsonl, line 1: is damaged \(not a line of results\)"):
        read_results(file)


def test_a_folder_is_not_taken_for_a_results_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder, expected a results file, such as"):
        read_results(tmp_path)


def test_one_study_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "new" / "results.jsonl"
    with (
        open_results(file),
        pytest.raises(UserError, match=r"results.jsonl: process \d+ is writing to this file"),
        open_results(file),
    ):
        pass
    with open_results(file):
        pass
    assert not read_results(file)


def test_a_half_line_left_by_a_full_disk_is_removed_before_the_next(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with open_results(file) as append:
        append(FAILED)
        with file.open("a") as f:
            f.write('{"format": 1, "id": "b"')
        append({**DONE, "id": "c"})
    assert list(read_results(file)) == ["a", "c"]


def test_a_run_with_two_results_is_not_believed_twice(tmp_path: Path) -> None:
    file = write(tmp_path / "results.jsonl", FAILED, DONE, DONE)
    assert read_results(file)["a"] == DONE
    other = {**DONE, "metrics": {"train_loss": 9.5, "valid_loss": None}}
    write(file, FAILED, DONE, other)
    with pytest.raises(UserError, match=r"line 3: c with seed 3 has an earlier line with oth"):
        read_results(file)
