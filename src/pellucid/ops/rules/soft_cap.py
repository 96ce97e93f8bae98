"""A soft cap bounds the scores smoothly to (−c, c)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.core.array import Array, namespace, own_number
from pellucid.ops.rule import Rule, Score


@dataclass(frozen=True)
class SoftCap(Score):
    """Replaces the scores A by c tanh(A / c). Source: Gemma Team 2024 (Gemma 2), 2."""

    cap: float

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return c t and t = tanh(a / c)."""
        t = namespace(a).tanh(a / self.cap)
        return self.cap * t, t

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return da ⊙ (1 − tanh²)."""
        return (da * (1.0 - saved * saved),)


def soft_cap(cap: float) -> Rule:
    """Bound the scores smoothly to (−cap, cap): A ← cap · tanh(A / cap).

    Raises `ValueError` unless cap is positive and finite.

    >>> y, _ = soft_cap(2.0).score[0].forward(np.array([0.0, 100.0]), np.zeros((1, 2)))
    >>> y
    array([0., 2.])
    """
    if not 0.0 < cap < float("inf"):
        raise ValueError(f"a soft cap must be a positive number, got {cap}")
    return Rule(score=(SoftCap(own_number(cap)),))
