"""A model folder with one damaged part is refused, and the part is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save, save_file
from tests.small import write_model

from pellucid.core.errors import UserError
from pellucid.families.folder import load_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full(7, np.inf, np.float32), "holds values that are not finite"),
        (np.full(7, 3), "has elements of int64; expected float"),
        (np.ones(7, bool), "has elements of bool; expected float"),
        (np.ones(7, np.complex64), "has elements of complex64; expected float"),
        (np.array(3, np.int8), "is int8, which only matrices may be"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_named(
    folder: Path, array: np.ndarray, message: str
) -> None:
    name = "encoder.layers.0.linear1.bias"
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {name: array}, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"model\.safetensors: {name}:? {message}"):
        load_model(folder)


def test_weights_of_more_bits_are_read(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    wide = {name: array.astype(np.float64) for name, array in weights.items()}
    save_file(wide, folder / "model.safetensors")
    for name, array in load_model(folder).model.state_dict().items():
        np.testing.assert_array_equal(array, weights[name])


def test_weights_in_bfloat16_are_read(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    upper = {n: (array.view(np.uint32) >> 16).astype(np.uint16) for n, array in weights.items()}
    content = save(upper)
    start = 8 + int.from_bytes(content[:8], "little")
    header = content[8:start].replace(b'"U16"', b'"BF16"')
    file.write_bytes(len(header).to_bytes(8, "little") + header + content[start:])
    for name, array in load_model(folder).model.state_dict().items():
        np.testing.assert_allclose(array, weights[name], rtol=2**-7)


@pytest.mark.parametrize("name", ["layer_norm_eps", "position_scale", "attention_scale"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_setting_that_is_no_finite_number_is_named(folder: Path, name: str, value: float) -> None:
    file = folder / "config.json"
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(settings | {name: value}), encoding="utf-8")
    with pytest.raises(UserError, match=rf"config\.json: {name} must be finite, got {value}"):
        load_model(folder)
