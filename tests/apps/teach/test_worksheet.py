"""Worksheets: small whole numbers that the steps on the sheet give, two pages, both languages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.apps.cli.main import main
from pellucid.apps.teach.worksheet import LARGEST, SHEETS, Sheet, pages, sheet, written

SEEDS = range(11)


def by_hand(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Follow the steps that are printed on the sheet."""
    match name:
        case "linear":
            x, w, dy = given["x"], given["W"], given["dy"]
            return {"dx": dy @ w, "dW": dy.T @ x, "db": dy.sum(0, keepdims=True)}
        case "softmax":
            s = (given["p"] * given["dp"]).sum(1, keepdims=True)
            return {"s": s, "dx": given["p"] * (given["dp"] - s)}
        case "layer_norm":
            x, g = given["x̂"], given["dy"] * given["γ"]
            a, b = g.mean(1, keepdims=True), (g * x).mean(1, keepdims=True)
            return {"g": g, "a": a, "b": b, "dx": (g - a - x * b) / given["σ"]}
    q, k, v, w, dz = (given[letter] for letter in ("Q", "K", "V", "W", "dZ"))
    dw = dz @ v.T
    da = w * (dw - (dw * w).sum(1, keepdims=True))
    return {"dV": w.T @ dz, "dW": dw, "dA": da, "dQ": da @ k / 2, "dK": da.T @ q / 2}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SHEETS)
def test_the_answers_are_whole_and_follow_from_the_steps(name: str, seed: int) -> None:
    drawn = sheet(name, seed)
    assert list(drawn.asked) == list(by_hand(name, drawn.given))
    for letter, matrix in by_hand(name, drawn.given).items():
        np.testing.assert_array_equal(drawn.asked[letter], matrix)
        assert np.abs(matrix).max() <= LARGEST
        assert all("/" not in written(number) for number in matrix.flat)


def numbers(drawn: Sheet) -> list[float]:
    return [number for matrix in drawn.given.values() for number in matrix.flat]


@pytest.mark.parametrize("name", SHEETS)
def test_every_seed_is_another_sheet_and_always_the_same(name: str) -> None:
    assert len({tuple(numbers(sheet(name, seed))) for seed in SEEDS}) == len(SEEDS)
    assert numbers(sheet(name, 3)) == numbers(sheet(name, 3))


def test_the_answers_are_on_the_second_page_only() -> None:
    task, answers = (
        {text.get_text() for text in page.axes[0].texts} for page in pages("linear", 5, "ko")
    )
    numbers = {written(n) for matrix in sheet("linear", 5).asked.values() for n in matrix.flat}
    assert numbers <= answers
    assert any("빈칸을 채워" in text for text in task)
    assert any("정답" in text for text in answers)
    assert len(answers) >= len(task)


def test_the_command_writes_one_pdf_or_two_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["worksheet", "softmax", "--seed", "7", "--lang", "en"]) == 0
    first = Path("softmax-7.pdf").read_bytes()
    assert first.startswith(b"%PDF")
    assert first.count(b"/Type /Page ") == 2
    assert main(["worksheet", "softmax", "--seed", "7", "--lang", "en"]) == 0
    assert Path("softmax-7.pdf").read_bytes() == first
    assert main(["worksheet", "softmax", "--output", "new/s.svg", "--lang", "ko"]) == 0
    assert Path("new/s-answers.svg").read_bytes().startswith(b"<?xml")
    shown = capsys.readouterr().out
    assert shown.count("wrote softmax-7.pdf") == 2
    assert "new/s.svg 저장" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no worksheet given; there are: linear, softmax"),
        (["atention"], "no worksheet 'atention'"),
        (["linear", "--seed", "-1"], "--seed must be 0 or more; got -1"),
        (["linear", "--output", "a.doc"], "--output must end in .svg, .png, .pdf; got 'a.doc'"),
    ],
)
def test_wrong_use_is_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worksheet", *arguments]) == 2
    assert message in capsys.readouterr().err
