"""One item of a record of `golden.py`: read, write and compare it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

Array = np.ndarray
NEAR, NEAR_INT8 = 1e-5, 3e-4
PROSE = {"code", "korean", "language", "model", "notes", "title"}
"""Keys of a page's record that hold text, not results."""


@dataclass(frozen=True)
class Item:
    """Results of one use of the command, or the reason why there are none."""

    arrays: Mapping[str, Array] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    within: float = 0.0
    """Tolerance of an array, relative to its largest value; 0: equal bits."""
    model: str = ""
    """SHA-256 of the weights that were used, if any."""
    skipped: str = ""
    failed: str = ""

    def digest(self) -> str:
        """Return the SHA-256 of all arrays and texts."""
        whole = hashlib.sha256(repr(sorted(self.texts.items())).encode())
        for name, array in sorted(self.arrays.items()):
            whole.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        return whole.hexdigest()


def compare(a: Item, b: Item) -> tuple[bool, str]:
    """Return whether two items agree, and a line that describes the comparison."""
    if a.failed or b.failed:
        return False, f"failed: {a.failed or b.failed}"
    if a.skipped or b.skipped:
        return True, f"skipped: {a.skipped or b.skipped}"
    if a.digest() == b.digest():
        return True, f"bits equal ({a.digest()[:12]})"
    hint = "" if a.model == b.model else "; the models differ too: record with --models"
    if odd := {*a.arrays, *a.texts} ^ {*b.arrays, *b.texts}:
        return False, f"only one has {', '.join(sorted(odd)[:5])}{hint}"
    for name, text in a.texts.items():
        if text != b.texts[name]:
            lines = itertools.zip_longest(text.split("\n"), b.texts[name].split("\n"))
            one, two = next((x, y) for x, y in lines if x != y)
            return False, f"{name}: {one!r:.60} and {two!r:.60}{hint}"
    within = max(a.within, b.within, 0 if a.model == b.model else NEAR)
    most, name = max((difference(x, b.arrays[name]), name) for name, x in a.arrays.items())
    found = f"bits differ, by {most:.1e} in {name} (allowed: {within:.0e})"
    return (True, found) if 0 < within >= most else (False, found + hint)


def difference(a: Array, b: Array) -> float:
    """Return max |a − b| / max |b|; inf if shapes, types or non-finite values differ.

    >>> difference(np.array([1.0, 4.0]), np.array([2.0, 4.0]))
    0.25
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    apart, largest = np.abs(a - b)[finite].max(initial=0.0), np.abs(b[finite]).max(initial=0.0)
    return float(apart / largest) if largest > 0 else math.inf if apart > 0 else 0.0


def flat(value: Any) -> tuple[dict[str, Array], dict[str, str]]:
    """Collect the numbers and texts of JSON by key; entries of a list share one key.

    >>> flat([{"p": 0.5, "token": "a"}, {"p": 1, "token": "b"}])
    ({'p': array([0.5, 1. ])}, {'token': 'a\\nb'})
    """
    numbers: dict[str, list[float]] = {}
    texts: dict[str, list[str]] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict) and "factors" in value:
            numbers.setdefault(path, []).extend(decoded(value).ravel())
        elif isinstance(value, dict):
            for key in value.keys() - PROSE:
                visit(value[key], f"{path}.{key}".lstrip("."))
        elif isinstance(value, list):
            for entry in value:
                visit(entry, path)
        elif isinstance(value, str):
            texts.setdefault(path, []).append(value)
        else:
            numbers.setdefault(path, []).append(math.nan if value is None else float(value))

    visit(value, "")
    arrays = {path: np.array(row) for path, row in numbers.items()}
    return arrays, {path: "\n".join(row) for path, row in texts.items()}


def decoded(value: Mapping[str, Any]) -> Array:
    """Decode an array of a page: integers of `bits` bits, and a factor per first index.

    >>> decoded({"shape": [1, 2], "bits": 8, "factors": [0.5], "data": "f8A="})
    array([[ 63.5, -32. ]])
    """
    size = value["bits"] // 8
    octets = np.frombuffer(base64.b64decode(value["data"]), np.uint8).reshape(-1, size)
    words = np.zeros((len(octets), 4), np.uint8)
    words[:, 4 - size :] = octets  # the highest byte has the sign
    whole = (words.view("<i4") >> (32 - 8 * size)).reshape(value["shape"])
    return np.asarray(whole * np.reshape(value["factors"], (-1, *[1] * (whole.ndim - 1))))


def save(path: Path, item: Item) -> None:
    """Write an item: its arrays as safetensors, everything else in the metadata."""
    rest = asdict(item) | {"arrays": None}
    save_file(dict(item.arrays), path, {"item": json.dumps(rest, ensure_ascii=False)})


def load(path: Path) -> Item:
    """Read an item that `save` wrote."""
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Item(**json.loads(file.metadata()["item"]) | {"arrays": arrays})


def compare_records(a: Path, b: Path) -> int:
    """Print a line for each item of two records; return 1 if one differs or none is in both."""
    names = [{path.stem for path in folder.glob("*.item")} for folder in (a, b)]
    differ = 0
    for name in sorted(names[0] | names[1]):
        if name not in names[0] & names[1]:
            print(f"-        {name:34} only in {a if name in names[0] else b}")
            continue
        same, line = compare(*(load(folder / f"{name}.item") for folder in (a, b)))
        differ += not same
        print(f"{'ok' if same else 'DIFFERS':8} {name:34} {line}")
    both = len(names[0] & names[1])
    print(f"{both} items in both, {differ} differ")
    return int(differ > 0 or not both)
