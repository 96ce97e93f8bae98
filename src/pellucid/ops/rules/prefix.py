"""A prefix is read in both directions, the rest from left to right."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Prefix(Allowed):
    """s ≤ l, or s < lengths[n]. Source: Raffel et al. 2020 (T5), 3.2.1."""

    lengths: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the prefix, and what is behind it up to the query."""
        return 0, np.maximum(at.query + 1, self.lengths[at.example])


def prefix(lengths: np.ndarray) -> Rule:
    """Let all see the first lengths[n] keys of sequence n, and later ones be causal; (N,)."""
    return Rule(allowed=(Prefix(kept(lengths)),))
