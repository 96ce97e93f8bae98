from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from pellucid.view.arrays import PRECISIONS, as_text, rounded


def unpacked(text: dict[str, Any]) -> np.ndarray:
    octets = text["bits"] // 8
    data = base64.b64decode(text["data"])
    numbers = [
        int.from_bytes(data[i : i + octets], "little", signed=True)
        for i in range(0, len(data), octets)
    ]
    shape = text["shape"]
    factors = np.array(text["factors"]).reshape(-1, *[1] * (len(shape) - 1))
    return np.array(numbers).reshape(shape) * factors


@pytest.mark.parametrize("bits", [8, 16, 24])
def test_numbers_come_back_to_half_a_step(bits: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 7)) * [[[1e-6]], [[1.0]], [[3e4]]]
    back = unpacked(as_text(x, bits))
    step = np.abs(x).max(axis=(1, 2), keepdims=True) / (2 ** (bits - 1) - 1)
    assert (np.abs(back - x) <= 0.5001 * step).all()
    np.testing.assert_allclose(rounded(x, bits), back, rtol=1e-12)


def test_nothing_but_zeros() -> None:
    assert not unpacked(as_text(np.zeros((2, 3, 5)), 24)).any()


def test_sizes_in_a_page() -> None:
    text = as_text(np.ones((8, 200, 32)), 24)
    assert len(text["data"]) == 8 * 200 * 32 * 4
    assert [p.size(1000) for p in PRECISIONS] == [16000, 14666, 8000]
