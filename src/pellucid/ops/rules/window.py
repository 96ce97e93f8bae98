"""A query looks at near keys only."""

from dataclasses import dataclass
from typing import Any

from pellucid.ops.rule import Allowed, Places, Rule, at_least_one


@dataclass(frozen=True)
class Window(Allowed):
    """|l − s| < size. Source: Jiang et al. 2023 (Mistral 7B), 2, with `causal`."""

    size: int

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the keys less than `size` positions away."""
        return at.query - (self.size - 1), at.query + self.size


def window(size: int) -> Rule:
    """Let a query see keys less than `size` positions away.

    Raises `ValueError` unless size is positive, `TypeError` unless it is whole.
    """
    return Rule(allowed=(Window(at_least_one(size, "a window")),))
