"""Position schemes: `POSITIONS` has the record of each by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.core.array import Array


@dataclass(frozen=True)
class Positions:
    """How a model knows the positions of its tokens. A new scheme is an op and its row here.

    table: (length, width) -> a fixed table; its rows are added to the tokens' rows.
    learned: a learned table's rows are added to the tokens' rows.
    rotate: an op (x (T, H, D), positions (T,), angles) -> y (T, H, D) for queries and keys.
    distance_bias: (query position − key position, H) -> what is added to the scores.
    relative: a learned number for every head and range of distances is added to the scores.
    """

    name: str
    table: Callable[[int, int], Array] | None = None
    learned: bool = False
    rotate: Callable[..., tuple[Any, Any]] | None = None
    distance_bias: Callable[[Array, int], Array] | None = None
    relative: bool = False


def _halves(length: int, width: int) -> Array:
    """The paper's table, all sines before all cosines: Marian's order."""
    table = ops.sinusoidal(length, width)
    return np.concatenate([table[:, ::2], table[:, 1::2]], axis=1)


POSITIONS: dict[str, Positions] = {
    scheme.name: scheme
    for scheme in (
        Positions("sinusoidal", table=ops.sinusoidal),
        Positions("sinusoidal_halves", table=_halves),
        Positions("learned", learned=True),
        Positions("rotary", rotate=ops.rotary),
        Positions("alibi", distance_bias=ops.alibi),
        Positions("relative", relative=True),
    )
}
