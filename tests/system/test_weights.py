from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from pellucid.core.errors import UserError
from pellucid.system.weights import average, from_safetensors, read_weights, to_safetensors


def state() -> dict[str, np.ndarray]:
    g = np.random.default_rng(0)
    table = g.standard_normal((3, 5))
    return {
        "table": table.astype(np.float32),
        "transposed": table.T,
        "count": np.array(7),
        "empty": np.zeros((0, 2), np.float32),
    }


def test_there_and_back() -> None:
    back = from_safetensors(to_safetensors(state()), "file")
    assert sorted(back) == sorted(state())
    for name, array in state().items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
        assert back[name].shape == array.shape


def test_tied_weights_are_stored_once_and_both_found() -> None:
    table = np.ones((3, 5), np.float32)
    tied = {"a.weight": table, "b.weight": table, "c.weight": table.copy()}
    data = to_safetensors(tied)
    assert sorted(safetensors.numpy.load(data)) == ["a.weight", "c.weight"]
    assert sorted(from_safetensors(data, "file")) == sorted(tied)


@pytest.mark.oracle("torch")
def test_safetensors_own_loader_for_tied_models_takes_it(tmp_path: Path) -> None:
    import safetensors.torch as loader
    import torch

    model = torch.nn.ModuleDict(
        {"a": torch.nn.Embedding(3, 5), "b": torch.nn.Linear(5, 3, bias=False)}
    )
    model["b"].weight = model["a"].weight
    table = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    path = tmp_path / "model.safetensors"
    path.write_bytes(to_safetensors({"a.weight": table, "b.weight": table}))
    loader.load_model(model, path)
    np.testing.assert_array_equal(model["b"].weight.detach().numpy(), table)


def test_the_same_state_is_the_same_bytes() -> None:
    table = np.ones((3, 5), np.float32)
    tied = dict.fromkeys("zyxwvu", table)
    assert len({to_safetensors(tied) for _ in range(8)}) == 1


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_a_cut_file_is_named(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(to_safetensors(state())[:cut])
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole safetensors file"):
        read_weights(path)


def test_a_foreign_or_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be read: No such file"):
        read_weights(path)
    path.write_bytes(b"PK\x03\x04 something else entirely" * 9)
    with pytest.raises(UserError, match=r"model\.safetensors: not a whole"):
        read_weights(path)


def test_a_header_whose_metadata_is_null_is_read() -> None:
    header = b'{"__metadata__":null,"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}'
    file = len(header).to_bytes(8, "little") + header + np.ones(3, "<f4").tobytes()
    np.testing.assert_array_equal(from_safetensors(file, "file")["x"], [1, 1, 1])


def one_array(dtype: str, data: bytes) -> bytes:
    """A file of one array x of shape (1, 3), of whatever element type."""
    entry: dict[str, Any] = {"dtype": dtype, "shape": [1, 3], "data_offsets": [0, len(data)]}
    header = json.dumps({"x": entry}).encode()
    return len(header).to_bytes(8, "little") + header + data


def test_bfloat16_is_read_exactly() -> None:
    values = np.array([[1.0, -2.5, 3.0e38]], np.float32)  # the third is not one of bfloat16's
    file = one_array("BF16", (values.view(np.uint32) >> 16).astype("<u2").tobytes())
    x = from_safetensors(file, "file")["x"]
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x[:, :2], values[:, :2])
    np.testing.assert_allclose(x, values, rtol=2**-7)


def test_an_element_type_that_numpy_lacks_is_named() -> None:
    with pytest.raises(UserError, match=r"file: x: element type F8_E4M3; expected one of F64, F32"):
        from_safetensors(one_array("F8_E4M3", bytes(3)), "file")
    with pytest.raises(UserError, match="file: not a whole safetensors file"):
        from_safetensors(one_array("BF17", bytes(6)), "file")


@pytest.mark.parametrize("header", [2**63, 2**40, 3, 0])
def test_a_header_of_an_absurd_length_is_refused(header: int) -> None:
    file = header.to_bytes(8, "little") + to_safetensors(state())[8:]
    with pytest.raises(UserError, match="file: not a whole safetensors file"):
        from_safetensors(file, "file")


@pytest.mark.parametrize(
    "dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8"]
)
def test_every_type_that_is_written_is_read(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    back = from_safetensors(to_safetensors({"x": x}), "file")["x"]
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)


def test_average_is_the_mean_in_float64() -> None:
    small, big = {"w": np.float32([1.0])}, {"w": np.float32([1e8])}
    mean = average([big, small, {"w": np.float32([-1e8])}])["w"]
    assert mean.dtype == np.float32
    np.testing.assert_allclose(mean, [1 / 3], rtol=1e-6)
