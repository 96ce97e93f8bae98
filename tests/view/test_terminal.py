from __future__ import annotations

import numpy as np
import pytest

from pellucid.view.terminal import attention_map


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
