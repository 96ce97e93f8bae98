"""Quantize weights: to float16, or to int8 with a scale for each row.

Compiled decoding can multiply in int8 (`kernels.backend.int8`); everything else first converts the
weights back to float32.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from pellucid.core.errors import UserError

Array = np.ndarray

WeightFormat = Literal["float32", "float16", "int8"]
Arithmetic = Literal["float32", "int8"]
"""The number type in which compiled decoding multiplies."""
SCALE = ".int8_scale"


class QuantizeError(UserError):
    """Weights cannot be quantized to this format, or quantized weights are damaged."""


def quantize(state: Mapping[str, Array], weights: WeightFormat) -> dict[str, Array]:
    """Convert a state dict to another format; names that share an array share the result.

    float16 rounds to nearest. int8 stores every matrix as round(w / s), with a float32 scale
    s = max|w| / 127 for each row under the name + ".int8_scale"; the error of a weight is at most
    s / 2. Arrays that are no matrices (biases, norms) become float32, as everything does with
    "float32"; an array that is float32 already is not copied.

    Raises `QuantizeError` when a weight is too large for float16 and that is the format.

    >>> {k: v.dtype.name for k, v in quantize({"w": np.eye(2)}, "int8").items()}
    {'w': 'int8', 'w.int8_scale': 'float32'}
    """
    made: dict[int, tuple[Array, Array | None]] = {}
    found: dict[str, Array] = {}
    for name, array in state.items():
        if id(array) not in made:
            made[id(array)] = _quantized(name, array, weights)
        found[name], scale = made[id(array)]
        if scale is not None:
            found[name + SCALE] = scale
    return found


def _quantized(name: str, array: Array, weights: WeightFormat) -> tuple[Array, Array | None]:
    """Return one array in another format, and its scales if it is now int8, else None.

    With "int8" only matrices become int8, and the others float32. Raises `QuantizeError` for a
    weight too large for float16.
    """
    if weights == "float16":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if np.isinf(half).any():
            raise QuantizeError(
                f"{name}: has weights above 65504, the largest of float16; keep it as float32"
            )
        return half, None
    if weights == "int8" and array.ndim == 2:
        return int8_rows(array)
    return array.astype(np.float32, copy=False), None


def int8_rows(w: Array) -> tuple[Array, Array]:
    """Quantize a matrix to int8: return round(w / s), and s = max|w| / 127 of each row, (rows, 1).

    >>> int8_rows(np.float32([[1, -0.5], [0, 0]]))[0]
    array([[127, -64],
           [  0,   0]], dtype=int8)
    """
    scale = np.abs(w).max(axis=1, keepdims=True, initial=0).astype(np.float32) / np.float32(127)
    safe = np.where(scale > 0, scale, np.float32(1))  # a row of zeros stays one
    return np.rint(w / safe).astype(np.int8), scale


def dequantize(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Convert the int8 and float16 arrays of a state dict to float32; others stay as they are.

    The scales of int8 arrays are left out. Names that share an array share the result. Raises
    `QuantizeError` naming an int8 array that is not a matrix, or whose scale is missing or has the
    wrong shape.

    >>> dequantize(quantize({"w": np.float32([[1, -0.5]])}, "int8"))["w"].round(1)
    array([[ 1. , -0.5]], dtype=float32)
    """
    made: dict[int, Array] = {}
    state: dict[str, Array] = {}
    for name, array in stored.items():
        if name.endswith(SCALE):
            continue
        if id(array) not in made:
            made[id(array)] = _dequantized(name, array, stored.get(name + SCALE))
        state[name] = made[id(array)]
    return state


def _dequantized(name: str, array: Array, scale: Array | None) -> Array:
    """Return one int8 or float16 array as float32, any other array itself."""
    if array.dtype == np.int8:
        if array.ndim != 2:
            raise QuantizeError(
                f"{name}: is int8, which only matrices may be, and its shape is {array.shape}; "
                "copy the model again"
            )
        if scale is None or scale.shape != (len(array), 1):
            found = "none" if scale is None else str(scale.shape)
            raise QuantizeError(
                f"{name}: is int8 and needs a scale of shape ({len(array)}, 1), found {found}"
            )
        return np.asarray(array.astype(np.float32) * scale)
    return array.astype(np.float32) if array.dtype == np.float16 else array
