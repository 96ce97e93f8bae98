"""Causal attention: a query does not attend to later keys."""

from dataclasses import dataclass
from typing import Any

from pellucid.ops.rule import Allowed, Places, Rule


@dataclass(frozen=True)
class Causal(Allowed):
    """Query l may attend to key s if s ≤ l. Source: Vaswani et al. 2017, 3.2.3."""

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the keys up to the query's own position."""
        return 0, at.query + 1


causal = Rule(allowed=(Causal(),))
