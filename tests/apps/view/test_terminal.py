from __future__ import annotations

import numpy as np
import pytest
from tests.apps.view.samples import shaken

from pellucid.apps import view
from pellucid.apps.view.terminal import attention_map


def test_shades_follow_the_weights() -> None:
    drawn = attention_map(np.array([[0.0, 0.25, 0.5, 0.75, 1.0]]) ** 2, ["o"], list("abcde"))
    assert drawn == "  a b c d e\no   ░░▒▒▓▓██"


def test_wide_letters_keep_the_columns() -> None:
    top, first, second = attention_map(np.eye(2), ["가", "b"], ["나", "d"]).split("\n")
    assert top == "   나 d"
    assert first == "가 ███"
    assert second == "b     ███"


def test_labels_must_fit() -> None:
    with pytest.raises(ValueError, match="got 1 outputs and 2 sources"):
        attention_map(np.eye(2), ["a"], ["x", "y"])


def test_what_is_too_wide_goes_on_below() -> None:
    drawn = attention_map(np.eye(5), list("vwxyz"), list("abcde"), width=8)
    assert [block.split("\n")[0] for block in drawn.split("\n\n")] == ["  a b c", "  d e"]
    assert drawn.split("\n\n")[1].split("\n")[-1] == "z   ██"


def test_a_map_of_a_record() -> None:
    seen = view.attention(shaken(), [5, 6, 7, 5], [4, 12])
    lines = seen.terminal("decoder", layer=1, head=2).split("\n")
    entropy = seen.record.layers("decoder")[0].entropies[1]
    title = f"decoder self-attention, layer 1, head 2; entropy {entropy:.2f} nats"
    assert lines[0] == title
    assert lines[1].split() == ["<s>", "4", "12"]
    assert lines[2].startswith("<s> ████")
    assert "mean of 3 heads" in seen.terminal()
