"""Read and write state dicts as safetensors files; tied weights are stored once, with aliases.

Files of other programs can be read too, with any usual element type.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from pellucid.core.array import LARGEST
from pellucid.core.errors import UserError, raised_as
from pellucid.system.files import read_file

Array = np.ndarray

_SIZES = {"F": (8, 4, 2), "I": (8, 4, 2, 1), "U": (8, 4, 2, 1), "C": (8,)}
"""The sizes in bytes of each kind of number: float, signed, unsigned, complex."""
_DTYPES = {f"{kind}{8 * n}": f"{kind.lower()}{n}" for kind, sizes in _SIZES.items() for n in sizes}
_DTYPES["BOOL"] = "?"


def to_safetensors(state: Mapping[str, Array]) -> bytes:
    """Encode a state dict as a safetensors file.

    If several names have the same array object, it is stored under the first; the others become
    aliases, {alias: name} in the file's metadata, as in `save_model` of safetensors.

    >>> table = np.ones((2, 3), np.float32)
    >>> sorted(from_safetensors(to_safetensors({"in": table, "out": table}), "model"))
    ['in', 'out']
    """
    first: dict[int, str] = {}
    aliases: dict[str, str] = {}
    tensors: dict[str, Array] = {}
    for name, array in state.items():
        known = first.setdefault(id(array), name)
        if known == name:
            tensors[name] = np.ascontiguousarray(array).reshape(array.shape)
        else:
            aliases[name] = known
    return _with_metadata(save(tensors), {"format": "np", **aliases})


def _with_metadata(content: bytes, metadata: Mapping[str, str]) -> bytes:
    """Put metadata into a file's header, in a fixed order.

    The library's order is random.
    """
    header, start = _header(content)
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """Return a file's header, and the offset at which the data begin."""
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    return header, start


def from_safetensors(content: bytes, source: Path | str) -> dict[str, Array]:
    """Decode a safetensors file; return its arrays by name. `source` names the file in errors.

    bfloat16, which NumPy does not have, becomes float32, without loss. Aliases of an array are
    returned under their names as well.

    Raises `UserError` if the bytes are not a complete safetensors file, or for an unknown element
    type.
    """
    broken = (SafetensorError, ValueError)
    with raised_as(UserError, *broken, where=f"{source}: not a whole safetensors file"):
        entries = deserialize(content)  # type: ignore[no-untyped-call]
        header, _ = _header(content)
    tensors = {name: _array(f"{source}: {name}", **entry) for name, entry in entries}
    metadata = header.get("__metadata__") or {}  # null, where a writer has none
    aliases = {
        alias: tensors[name]
        for alias, name in metadata.items()
        if name in tensors and alias not in tensors
    }
    return {**tensors, **aliases}


def _array(where: str, dtype: str, shape: list[int], data: bytes) -> Array:
    """Decode one array; raise `UserError` for an unknown element type."""
    if dtype == "BF16":  # the upper half of a float32
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32).reshape(shape)
    if dtype not in _DTYPES:
        raise UserError(
            f"{where}: element type {dtype}; expected one of {', '.join(_DTYPES)}, BF16"
        )
    return np.frombuffer(data, _DTYPES[dtype]).reshape(shape)


def check_weights(weights: Mapping[str, Array], source: Path | str) -> None:
    """Raise `UserError` for weights that cannot be those of a trained model.

    Refused, with the name of the array, are other types than floats, NaN and infinity, and numbers
    above `LARGEST`, whose squares may overflow in float32; and weights all of whose matrices are
    zero.
    """
    for name, array in weights.items():
        if array.dtype.kind != "f":
            raise UserError(
                f"{source}: {name} has elements of {array.dtype}; expected float16, float32 or "
                "float64: save the model again"
            )
        if not np.isfinite(array).all():
            raise UserError(f"{source}: {name} holds values that are not finite")
        largest = float(np.abs(array).max(initial=0.0))
        if largest > LARGEST:
            raise UserError(
                f"{source}: {name} holds values up to {largest:.2g}, whose squares are not finite "
                "in float32; it is damaged: copy it again"
            )
    matrices = [array for array in weights.values() if array.ndim > 1 and array.size]
    if matrices and not any(array.any() for array in matrices):
        raise UserError(f"{source}: every matrix is zero; it is damaged: copy it again")


def read_weights(path: Path) -> dict[str, Array]:
    """Read a safetensors file; return its arrays by name, as `from_safetensors` does.

    Raises `UserError` naming the file if it cannot be read or decoded.
    """
    return from_safetensors(read_file(path), path)


def average(states: list[Mapping[str, Array]]) -> dict[str, Array]:
    """Average several state dicts of one model, summing in float64 in the order given.

    The result has new arrays, of the names and types of the first; arrays that were shared are not.

    >>> average([{"w": np.float32([1.0])}, {"w": np.float32([4.0])}])["w"]
    array([2.5], dtype=float32)
    """
    mean: dict[str, Array] = {}
    for name, first in states[0].items():
        total = np.zeros(first.shape)
        for state in states:
            total += state[name]
        mean[name] = (total / len(states)).astype(first.dtype)
    return mean
