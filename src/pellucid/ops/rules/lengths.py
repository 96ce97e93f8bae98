"""Padding is not attended to."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Lengths(Allowed):
    """Queries of sequence n may attend to key s if first[n] ≤ s < last[n]."""

    first: np.ndarray
    last: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range of keys of each query's sequence."""
        return self.first[at.example], self.last[at.example]


def lengths(last: np.ndarray, first: np.ndarray | None = None) -> Rule:
    """Let queries of sequence n attend to keys first[n] … last[n] − 1, which excludes padding.

    first, last: (N,) integers (else `TypeError`); `first` is 0 by default. Source: article 004.
    """
    return Rule(
        allowed=(Lengths(kept(np.zeros_like(last) if first is None else first), kept(last)),)
    )
