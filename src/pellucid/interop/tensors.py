"""Arrays out of a safetensors file, of any element type that weights come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from pellucid.errors import UserError
from pellucid.training.weights import with_aliases

Array = np.ndarray

_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read_tensors(path: Path) -> dict[str, Array]:
    """Return the arrays of a safetensors file by name; bfloat16, which NumPy lacks, as float32.

    Tied weights, stored once, come under each of their names.

    Raises `UserError` naming the file when it cannot be read, is not whole, or holds an element
    type that is none of these.
    """
    try:
        content = path.read_bytes()
        entries = deserialize(content)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except SafetensorError as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from None
    tensors = {name: _array(f"{path}: {name}", **entry) for name, entry in entries}
    return with_aliases(tensors, content)


def _array(where: str, dtype: str, shape: list[int], data: bytes) -> Array:
    if dtype == "BF16":  # the upper half of a float32
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32).reshape(shape)
    if dtype not in _DTYPES:
        raise UserError(
            f"{where}: element type {dtype}; expected one of {', '.join(_DTYPES)}, BF16"
        )
    return np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
