"""Position schemes: `POSITIONS` has a record for each, by name."""

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
    """A way to tell a model the positions of its tokens. Add a new one to `POSITIONS`.

    table: function (length, width) -> fixed table, whose rows are added to the token embeddings.
    learned: whether the rows of a learned table are added to the token embeddings.
    rotate: op f(x (T, H, D), positions (T,), angles) -> (y, saved), applied to queries and keys.
    rotate_cross: whether those of cross-attention are rotated too.
    onnx: adds the ONNX nodes of `rotate`, given the names of x (N, H, L, D) and of its angles θ
        (N, 1, L, D), negated for the first half of the channels, and D.
    rule: attention rule that changes the scores.
    relative: whether a learned bias for each head and bucket of distances is added to the scores.
    """

    name: str
    table: Callable[[int, int], Array] | None = None
    learned: bool = False
    rotate: Callable[..., tuple[Any, Any]] | None = None
    rotate_cross: bool = False
    onnx: Callable[[OnnxNode, str, str, int], str] | None = None
    rule: Rule = EVERYTHING
    relative: bool = False


def _halves(length: int, width: int) -> Array:
    """Return the sinusoidal table with all sines before all cosines, the order of Marian."""
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
        Positions("rotary_cross", rotate=ops.rotary, rotate_cross=True),
        Positions("alibi", rule=rules.alibi),
        Positions("relative", relative=True),
    )
)
