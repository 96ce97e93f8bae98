"""The padding of a sequence is not looked at."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Lengths(Allowed):
    """first[n] ≤ s < last[n]."""

    first: np.ndarray
    last: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the keys of the query's sequence."""
        return self.first[at.example], self.last[at.example]


def lengths(last: np.ndarray, first: np.ndarray | None = None) -> Rule:
    """Let queries of sequence n see keys first[n] … last[n] − 1; (N,) integers, first 0 unless
    given. Article 004.
    """
    return Rule(
        allowed=(Lengths(kept(np.zeros_like(last) if first is None else first), kept(last)),)
    )
