"""Suspicious pairs are found, and left out where that is asked for, with their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.data.files import read_pairs, read_split, with_more
from pellucid.data.pairs import Splits, TextPair
from pellucid.data.quality import faults

USUAL = "".join(f"word{i} here\tding{i} hier\n" for i in range(7))
MESSY = (
    "source\ttarget\n" + USUAL + "\tempty\nempty\t \nOK\tOK\n"
    "a <b>bold</b> word\tein Wort, fett\n%d files\tDateien\n{n} of 7\t{n} von 7\n"
    "word1 here\tding1 hier\nlong\t" + "x" * 99 + "\n"
)


@pytest.mark.parametrize(
    ("source", "target", "found"),
    [
        ("100 % sure", "zu 100 % sicher", []),
        ("costs $5", "kostet 5 $", []),
        ("%1$s: %.2f", "%.2f: %1$s", []),
        ("%1$s: %.2f", "%1$s: %2f", ["placeholders"]),
        ("hello ${name}", "hallo name", ["placeholders"]),
        ("a < b and c > d", "a < b und c > d", []),
        ("fish &amp; chips", "Fisch und Chips", ["markup"]),
        ("<br/>", "<br/>", ["copies", "markup"]),
    ],
)
def test_a_pair_shows_its_faults(source: str, target: str, found: list[str]) -> None:
    assert faults([TextPair(source, (target,))]) == [found]


def test_empty_pairs_are_left_out_and_others_where_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path := tmp_path / "m.tsv").write_text(MESSY, encoding="utf-8")
    assert len(read_pairs(path)) == 7 + 6
    assert "m.tsv: left out 2 pairs (empty): lines 9, 10" in caplog.text
    caplog.clear()
    every = ("copies", "markup", "placeholders", "duplicates", "lengths")
    pairs = read_pairs(path, leave_out=every)
    assert [pair.source for pair in pairs[7:]] == ["{n} of 7"]
    for name, line in zip(every, (11, 12, 13, 15, 16), strict=True):
        assert f"left out 1 pair ({name}): line {line}" in caplog.text


def test_all_files_are_read_without_them(tmp_path: Path) -> None:
    (path := tmp_path / "m.tsv").write_text(MESSY, encoding="utf-8")
    split = read_split([path], [path], [path], held_out=0.0, leave_out=["copies"])
    for side in (split.train, split.valid, split.test):
        assert len(side) == 12
    assert len(with_more(Splits(()), [path], leave_out=["copies"]).train) == 12
