"""Position schemes: `POSITIONS` has the record of each by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.core.array import Array
from pellucid.core.parts import Registry
from pellucid.ops import rules
from pellucid.ops.activations import OnnxNode
from pellucid.ops.rule import EVERYTHING, Rule


@dataclass(frozen=True)
class Positions:
    """How a model knows the positions of its tokens. A new scheme is an op and its row here.

    table: (length, width) -> a fixed table; its rows are added to the tokens' rows.
    learned: a learned table's rows are added to the tokens' rows.
    rotate: an op (x (T, H, D), positions (T,), angles) -> y (T, H, D) for queries and keys.
    onnx: makes the ONNX nodes of `rotate` for x (N, H, L, D), the angles θ (N, 1, L, D) of its
        numbers, those of the first half negated, and D.
    rule: what is done to the scores.
    relative: a learned number for every head and range of distances is added to the scores.
    """

    name: str
    table: Callable[[int, int], Array] | None = None
    learned: bool = False
    rotate: Callable[..., tuple[Any, Any]] | None = None
    onnx: Callable[[OnnxNode, str, str, int], str] | None = None
    rule: Rule = EVERYTHING
    relative: bool = False


def _halves(length: int, width: int) -> Array:
    """The paper's table, all sines before all cosines: Marian's order."""
    table = ops.sinusoidal(length, width)
    return np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)


def _onnx_rotary(node: OnnxNode, x: str, angles: str, width: int) -> str:
    order = [(i + width // 2) % width for i in range(width)]
    other = node("Gather", x, node("Constant", value_ints=order), axis=-1)
    cos, sin = (node("CastLike", node(name, angles), x) for name in ("Cos", "Sin"))
    return node("Add", node("Mul", x, cos), node("Mul", other, sin))


POSITIONS: Registry[Positions] = Registry(
    (scheme.name, scheme)
    for scheme in (
        Positions("sinusoidal", table=ops.sinusoidal),
        Positions("sinusoidal_halves", table=_halves),
        Positions("learned", learned=True),
        Positions("rotary", rotate=ops.rotary, onnx=_onnx_rotary),
        Positions("alibi", rule=rules.alibi),
        Positions("relative", relative=True),
    )
)
