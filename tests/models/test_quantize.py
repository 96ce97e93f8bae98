"""Weights in fewer bytes: how far off they are, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid.models.quantize import QuantizeError, dequantize, quantize
from pellucid.system.weights import from_safetensors, to_safetensors


def state() -> dict[str, np.ndarray]:
    g = np.random.default_rng(0)
    table = g.standard_normal((7, 11)).astype(np.float32) * np.logspace(-3, 2, 7)[:, None]
    table[3] = 0
    table = table.astype(np.float32)
    return {"a": table, "b": table, "bias": g.standard_normal(5).astype(np.float32)}


def test_float32_is_exact_and_float16_within_half_a_unit() -> None:
    for name, back in dequantize(quantize(state(), "float32")).items():
        np.testing.assert_array_equal(back, state()[name])
    for name, back in dequantize(quantize(state(), "float16")).items():
        assert back.dtype == np.float32
        np.testing.assert_allclose(back, state()[name], rtol=2.0**-11, atol=2.0**-25)


def test_int8_is_within_half_a_step_of_each_row() -> None:
    back, before = dequantize(quantize(state(), "int8")), state()
    step = np.abs(before["a"]).max(axis=1, keepdims=True) / 127
    assert (np.abs(back["a"] - before["a"]) <= 0.5001 * step).all()
    assert (back["a"][3] == 0).all()
    np.testing.assert_array_equal(back["bias"], before["bias"])


@pytest.mark.parametrize("weights", ["float32", "float16", "int8"])
def test_tied_weights_stay_tied_through_a_file(weights: str) -> None:
    data = to_safetensors(quantize(state(), weights))  # type: ignore[arg-type]
    back = dequantize(from_safetensors(data, "file"))
    assert back["a"] is back["b"]
    assert set(back) == {"a", "b", "bias"}


def test_what_cannot_be_quantized_or_read_is_refused() -> None:
    with pytest.raises(QuantizeError, match="w: has weights above 65504"):
        quantize({"w": np.float32([[1e6]])}, "float16")
    broken = quantize(state(), "int8")
    del broken["a.int8_scale"]
    with pytest.raises(QuantizeError, match=r"a: is int8 and needs a scale of shape \(7, 1\)"):
        dequantize(broken)
    for shape in ((), (7,), (7, 1, 3)):
        other = {"a": np.zeros(shape, np.int8), "a.int8_scale": np.ones((7, 1), np.float32)}
        with pytest.raises(QuantizeError, match="a: is int8, which only matrices may be"):
            dequantize(other)
