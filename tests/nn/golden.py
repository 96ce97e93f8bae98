"""Cases and what torch answered to them, as one safetensors file: arrays, and one line of JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.nn.draws import Array, Case, Part

FILE = Path(__file__).parents[1] / "fixtures" / "nn.safetensors"


def _packed(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = np.array(value, order="C")
        return {"@array": name}
    if isinstance(value, Part):
        return {"@part": value.kind, "build": _packed(value.build, name, arrays)}
    if isinstance(value, dict):
        return {k: _packed(v, f"{name}/{k}", arrays) for k, v in value.items()}
    if isinstance(value, list):
        return [_packed(v, f"{name}/{i}", arrays) for i, v in enumerate(value)]
    return value


def _unpacked(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, list):
        return [_unpacked(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "@array" in value:
        return arrays[value["@array"]]
    if "@part" in value:
        return Part(value["@part"], _unpacked(value["build"], arrays))
    return {k: _unpacked(v, arrays) for k, v in value.items()}


def save(cases: dict[str, tuple[Case, dict[str, Array]]], torch_version: str) -> None:
    """Write the cases and torch's results."""
    arrays: dict[str, Array] = {}
    described = {}
    for name, (case, result) in cases.items():
        parts = {f.name: getattr(case, f.name) for f in fields(case)}
        described[name] = _packed(parts | {"result": result}, name, arrays)
    save_file(arrays, FILE, {"torch": torch_version, "cases": json.dumps(described)})


def load() -> dict[str, tuple[Case, dict[str, Array]]]:
    """Read them back."""
    with safe_open(FILE, "numpy") as file:
        described = json.loads(file.metadata()["cases"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    cases = {}
    for name, parts in described.items():
        whole = _unpacked(parts, arrays)
        result = whole.pop("result")
        cases[name] = Case(**whole), result
    return cases
