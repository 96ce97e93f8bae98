"""A state dict as a safetensors file: tied weights are stored once, the other names as aliases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pellucid.errors import UserError

Array = np.ndarray


def to_safetensors(state: Mapping[str, Array]) -> bytes:
    """Return the file's bytes. A name whose array another name already has becomes an alias.

    Aliases stand in the file's metadata as {alias: name}, as safetensors' own `save_model` writes
    them.

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
    """Put metadata into a file's header. The library would write it in a random order."""
    header, start = _header(content)
    text = json.dumps({"__metadata__": metadata, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[start:]


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    """Return a file's header and where the data begin."""
    start = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:start])
    return header, start


def from_safetensors(content: bytes, source: Path | str) -> dict[str, Array]:
    """Return the arrays of a file, aliases included; `source` names it in errors.

    Raises `UserError` when the bytes are not a whole safetensors file.
    """
    try:
        tensors: dict[str, Array] = load(content)
        return with_aliases(tensors, content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"{source}: not a whole safetensors file ({error})") from None


def with_aliases(tensors: Mapping[str, Array], content: bytes) -> dict[str, Array]:
    """Return a file's arrays, those stored once for several names under each of them."""
    header, _ = _header(content)
    metadata = header.get("__metadata__") or {}  # null, where a writer had nothing to say
    more = {
        alias: tensors[name]
        for alias, name in metadata.items()
        if name in tensors and alias not in tensors
    }
    return {**tensors, **more}


def check_weights(weights: Mapping[str, Array], source: Path | str) -> None:
    """Raise `UserError` naming an array that holds other than finite floating-point numbers."""
    for name, array in weights.items():
        if array.dtype.kind != "f":
            raise UserError(
                f"{source}: {name} has elements of {array.dtype}; expected float16, float32 or "
                "float64: save the model again"
            )
        if not np.isfinite(array).all():
            raise UserError(f"{source}: {name} holds values that are not finite")


def read_weights(path: Path) -> dict[str, Array]:
    """Read a safetensors file. Raises `UserError` naming it when it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return from_safetensors(content, path)


def average(states: list[Mapping[str, Array]]) -> dict[str, Array]:
    """Return the mean of several state dicts of one model, added in float64 in the order given.

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
