"""Prefix attention: bidirectional within a prefix, causal after it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.ops.rule import Allowed, Places, Rule, kept


@dataclass(frozen=True, eq=False)
class Prefix(Allowed):
    """Query l may attend to key s if s ≤ l or s < lengths[n].

    Source: Raffel et al. 2020 (T5), 3.2.1.
    """

    lengths: np.ndarray

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range from 0 to the end of the prefix or to the query, whichever is later."""
        return 0, np.maximum(at.query + 1, self.lengths[at.example])


def prefix(lengths: np.ndarray) -> Rule:
    """Let every query attend to the first lengths[n] keys of sequence n, and causally to the rest.

    lengths: (N,) integers (else `TypeError`).
    """
    return Rule(allowed=(Prefix(kept(lengths)),))
