"""How a model knows where a token stands. A new scheme is a page in `ops` and a row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pellucid import ops
from pellucid.core.array import Array


@dataclass(frozen=True)
class Positions:
    """All that is known of a position scheme.

    table: (length, width) -> a fixed table whose rows are added to the tokens'.
    learned: a table that is learnt is added to the tokens'.
    rotate: an op (x (T, H, D), positions (T,)) -> y (T, H, D) for queries and keys.
    """

    name: str
    table: Callable[[int, int], Array] | None = None
    learned: bool = False
    rotate: Callable[..., tuple[Any, Any]] | None = None


POSITIONS: dict[str, Positions] = {
    scheme.name: scheme
    for scheme in (
        Positions("sinusoidal", table=ops.sinusoidal),
        Positions("learned", learned=True),
        Positions("rotary", rotate=ops.rotary),
    )
}
