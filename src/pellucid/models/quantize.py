"""Weights in fewer bytes: float16, or int8 with a scale for each row. Arithmetic stays float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from pellucid.core.errors import UserError

Array = np.ndarray

Store = Literal["float32", "float16", "int8"]
SCALE = ".int8_scale"


class StorageError(UserError):
    """Weights that cannot be stored so, or a store that cannot be read."""


def reduced(state: Mapping[str, Array], store: Store) -> dict[str, Array]:
    """Return the arrays as they are to be stored; names that share an array share the result.

    float16 rounds to nearest. int8 keeps round(w / s) of every matrix with s = max|w| / 127 of its
    row, a float32 beside it under the name + ".int8_scale"; the error of a weight is at most s / 2.
    Vectors (biases, norms) stay float32.

    Raises `StorageError` when a weight is too large for float16.

    >>> import numpy as np
    >>> {k: v.dtype.name for k, v in reduced({"w": np.eye(2)}, "int8").items()}
    {'w': 'int8', 'w.int8_scale': 'float32'}
    """
    made: dict[int, tuple[Array, Array | None]] = {}
    stored: dict[str, Array] = {}
    for name, array in state.items():
        if id(array) not in made:
            made[id(array)] = _reduced(name, array, store)
        stored[name], scale = made[id(array)]
        if scale is not None:
            stored[name + SCALE] = scale
    return stored


def _reduced(name: str, array: Array, store: Store) -> tuple[Array, Array | None]:
    if store == "float16":
        with np.errstate(over="ignore"):
            half = array.astype(np.float16)
        if np.isinf(half).any():
            raise StorageError(
                f"{name}: has weights above 65504, the largest of float16; store it as float32"
            )
        return half, None
    if store == "int8" and array.ndim == 2:
        scale = np.abs(array).max(axis=1, keepdims=True, initial=0).astype(np.float32) / np.float32(
            127
        )
        safe = np.where(scale > 0, scale, np.float32(1))  # a row of zeros stays one
        return np.rint(array / safe).astype(np.int8), scale
    return array.astype(np.float32, copy=False), None


def restored(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return stored arrays as float32; names that share an array share the result.

    Raises `StorageError` naming an int8 array that is no matrix, or whose scale is missing or does
    not fit.

    >>> import numpy as np
    >>> restored(reduced({"w": np.float32([[1, -0.5]])}, "int8"))["w"].round(1)
    array([[ 1. , -0.5]], dtype=float32)
    """
    made: dict[int, Array] = {}
    state: dict[str, Array] = {}
    for name, array in stored.items():
        if name.endswith(SCALE):
            continue
        if id(array) not in made:
            made[id(array)] = _restored(name, array, stored.get(name + SCALE))
        state[name] = made[id(array)]
    return state


def _restored(name: str, array: Array, scale: Array | None) -> Array:
    if array.dtype == np.int8:
        if array.ndim != 2:
            raise StorageError(
                f"{name}: is int8, as only matrices are stored, and its shape is {array.shape}; "
                "copy the model again"
            )
        if scale is None or scale.shape != (len(array), 1):
            found = "none" if scale is None else str(scale.shape)
            raise StorageError(
                f"{name}: is int8 and needs a scale of shape ({len(array)}, 1), found {found}"
            )
        return np.asarray(array.astype(np.float32) * scale)
    return array.astype(np.float32) if array.dtype == np.float16 else array
