"""Sliding-window attention: a query attends only to near keys."""

from dataclasses import dataclass
from typing import Any

from pellucid.ops.rule import Allowed, Places, Rule, at_least_one


@dataclass(frozen=True)
class Window(Allowed):
    """Query l may attend to key s if |l − s| < size.

    Source: Jiang et al. 2023 (Mistral 7B), 2, there combined with `causal`.
    """

    size: int

    def bounds(self, at: Places) -> tuple[Any, Any]:
        """Return the range of keys less than `size` positions away from each query."""
        return at.query - (self.size - 1), at.query + self.size


def window(size: int) -> Rule:
    """Let a query attend only to keys less than `size` positions away.

    Raises `ValueError` unless size is positive, `TypeError` unless it is an integer.
    """
    return Rule(allowed=(Window(at_least_one(size, "a window")),))
