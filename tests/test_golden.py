"""Two records of `scripts/golden.py` are compared item by item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golden_item import NEAR, Item, compare, compare_records, difference, flat, load, save

WEIGHTS = np.array([0.5, -2.0, 1.0], np.float32)


def item(shift: float = 0.0, **other: Any) -> Item:
    moved = WEIGHTS + np.float32(shift)
    return Item(**{"arrays": {"w": moved}, "texts": {"text": "a\nb"}, "model": "m", **other})


@pytest.mark.parametrize(
    ("a", "b", "same", "line"),
    [
        (item(), item(), True, "bits equal"),
        (item(), item(1e-6), False, "bits differ, by"),
        (item(within=NEAR), item(1e-6, within=NEAR), True, "bits differ, by"),
        (item(within=NEAR), item(1e-3, within=NEAR), False, "in w (allowed: 1e-05)"),
        (item(model="one"), item(1e-6, model="other"), True, "bits differ, by"),
        (item(model="one"), item(1e-3, model="other"), False, "the models differ too"),
        (item(), item(texts={"text": "a\nc"}), False, "text: 'b' and 'c'"),
        (item(), item(texts={"text": "a"}), False, "text: 'b' and None"),
        (item(), item(arrays={"v": WEIGHTS}), False, "only one has v, w"),
        (item(within=1), item(arrays={"w": WEIGHTS[:2]}, within=1), False, "by inf in w"),
        (Item(texts={"f": "1"}), Item(texts={"f": "2"}), False, "f: '1' and '2'"),
        (item(), Item(skipped="no torch"), True, "skipped: no torch"),
        (item(), Item(failed="no model"), False, "failed: no model"),
        (Item(skipped="no torch"), Item(failed="no model"), False, "failed: no model"),
    ],
)
def test_items_are_compared_by_bits_or_within_their_tolerance(
    a: Item, b: Item, same: bool, line: str
) -> None:
    found = compare(a, b)
    assert found[0] is same
    assert line in found[1]


def test_non_finite_values_differ_from_all_others() -> None:
    nan, inf = np.array([1.0, np.nan]), np.array([1.0, np.inf])
    assert difference(nan, nan) == 0
    for a, b in ((nan, inf), (np.ones(2), nan), (nan, np.ones(2)), (-inf, inf)):
        assert difference(a, b) == np.inf
    assert difference(np.zeros(2), np.zeros(2)) == 0
    assert difference(np.ones(2), np.zeros(2)) == np.inf


def test_the_numbers_of_a_page_are_read_and_its_prose_is_not() -> None:
    packed = {"shape": [2, 1], "bits": 24, "factors": [0.5, 2.0], "data": "AQAA////"}
    arrays, texts = flat({"maps": [{"q": packed}], "notes": ["prose"], "loss": None})
    assert arrays["maps.q"].tolist() == [0.5, -2.0]
    assert np.isnan(arrays["loss"]).all()
    assert texts == {}


def test_records_differ_if_an_item_does_or_none_is_in_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, shift in ((a, 0.0), (b, 1.0)):
        folder.mkdir()
        save(folder / "one.item", item())
        save(folder / "two.item", item(shift))
    assert load(a / "one.item").digest() == item().digest()
    assert compare_records(a, b) == 1
    assert "DIFFERS  two" in capsys.readouterr().out
    save(b / "three.item", item())
    (b / "two.item").unlink()
    assert compare_records(a, b) == 0
    assert f"only in {b}" in capsys.readouterr().out
    (b / "one.item").unlink()
    assert compare_records(a, b) == 1
