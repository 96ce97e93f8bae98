"""A trained model that reverses its input: its cross-attention runs backwards through the text."""

from __future__ import annotations

import numpy as np
from tests.apps.view.reversing import reversing

from pellucid.apps import view

TEXT = "바다가🌊자하마나"


def test_attention_runs_backwards_through_the_source() -> None:
    record = view.attention(reversing(), TEXT).record
    assert record.title == f"{TEXT} → {TEXT[::-1]}"
    attended = record.layers("cross")[-1].probabilities.mean(axis=0).argmax(axis=1)
    backwards = np.arange(len(TEXT))[::-1]
    assert (np.abs(attended[: len(TEXT)] - backwards) <= 1).all()
