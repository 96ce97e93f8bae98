"""Every query looks at adjacent keys: what most masks come to."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Bounded(Allowed):
    """first[l] ≤ s < last[l]."""

    first: np.ndarray
    last: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the bounds of each query."""
        return self.first[at.query], self.last[at.query]


def bounded(first: np.ndarray, last: np.ndarray) -> Rule:
    """Let query l of every sequence see keys first[l] … last[l] − 1; (L,) integers each."""
    return Rule(allowed=(Bounded(kept(first), kept(last)),))
