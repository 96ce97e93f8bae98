"""`pellucid data`: what is in a file, and a command that trains on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.apps.cli.test_main import failed, pellucid

SENTENCES = "".join(f"the word {i}\tdas Wort {i}\n" for i in range(40)) + "OK\tOK\n" * 2
WORDS = [f"{a}{b}" for a in "abcdefg" for b in "hijklmn"]


@pytest.mark.parametrize(
    ("rows", "recipe"),
    [
        (SENTENCES, "multi30k-de-en-small --data.train f.tsv --data.leave-out copies duplicates"),
        ("".join(f"{w}\t{' '.join(w)}\n" for w in WORDS), "g2p-small --data.train f.tsv"),
        (
            "".join(f"{w}\t{w[::-1]}\n" for w in [*WORDS, "noon"]),  # a copy, and right
            "g2p-small --data.train f.tsv --tokenizer.target-kind char",
        ),
        ("".join(f"{w}\t{len(w) + (w < 'c')}\n" for w in WORDS), "topics-ko --data.train f.tsv"),
    ],
)
def test_the_last_line_is_a_command_that_trains_on_the_file(
    rows: str, recipe: str, tmp_path: Path
) -> None:
    (tmp_path / "f.tsv").write_text(rows, encoding="utf-8")
    last = pellucid("data", "f.tsv", cwd=tmp_path).stdout.splitlines()[-1]
    assert last == f"train on it: pellucid train {recipe}"


def test_a_report_counts_lengths_characters_labels_and_faults(tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text(SENTENCES, encoding="utf-8")
    found = json.loads(pellucid("data", "f.tsv", "--json", cwd=tmp_path).stdout)
    assert (found["pairs"], found["sources"], found["labels"]) == (42, 41, {})
    assert {name: row["pairs"] for name, row in found["suspicious"].items()} == {
        "copies": 2, "duplicates": 1,
    }  # fmt: skip
    assert found["characters"]["target"]["most"] == len("das Wort 10")
    shown = pellucid("data", "f.tsv", cwd=tmp_path).stdout
    assert "OK → OK" in shown
    rows = "".join(f"a,b{i},{'yes' if i % 3 else 'no'}\n" for i in range(30))
    (tmp_path / "three.csv").write_text("first,second,label\n" + rows, encoding="utf-8")
    named = ("data", "three.csv", "--columns", "first", "second", "label")
    report = json.loads(pellucid(*named, "--json", cwd=tmp_path).stdout)
    assert report["labels"] == {"yes": 20, "no": 10}
    last = "topics-ko --data.train three.csv --data.columns first second label"
    assert last in pellucid(*named, cwd=tmp_path).stdout
    (tmp_path / "three.tsv").write_text("a\tb\tc\n" * 30, encoding="utf-8")
    found = pellucid("data", "three.tsv", cwd=tmp_path)
    failed(found, 1, "got 3; say which to read with --columns: names in the first line, or numbers")
    assert found.stderr.strip().endswith("from 1, the target last, as in 1 2 3")
    failed(pellucid("data", cwd=tmp_path), 2, "which file?")


@pytest.mark.parametrize("columns", [["1"], ["2", "2"], ["1", "2", "1"]])
@pytest.mark.parametrize(
    "words",
    [
        ["data", "f.tsv", "--columns"],
        ["train", "g2p-small", "--data.train", "f.tsv", "--data.columns"],
    ],
)
def test_columns_are_two_or_three_different_ones(
    words: list[str], columns: list[str], tmp_path: Path
) -> None:
    (tmp_path / "f.tsv").write_text(SENTENCES, encoding="utf-8")
    done = pellucid(*words, *columns, cwd=tmp_path)
    option = words[-1]
    failed(done, 1 if option == "--columns" else 2, f"{option} takes 2 or 3 different columns")
