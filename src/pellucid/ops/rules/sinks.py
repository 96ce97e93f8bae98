"""Attention sinks: every head has a score that no key has, so that a query may look at nothing."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.core.array import Array, namespace
from pellucid.ops.rule import Rule, Score, check_heads


@dataclass(frozen=True, eq=False)
class Sinks(Score):
    """softmax([A, c_h]) without its last column. It is applied after all other scores."""

    numbers: Array

    last: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[Array, ...]:
        """Return the scores c."""
        return (self.numbers,)

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return the scores unchanged: a sink only adds c_h to softmax's denominator, as e^c_h."""
        check_heads(self.parameters, a.shape[-3] if a.ndim > 2 else 1)
        return a, None

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return da, and dc, the sum of the sink's own dA, (…, L, 1), which attention gives."""
        xp, heads = namespace(saved), self.numbers.shape[0]
        *lead, length, _ = da.shape
        each = xp.reshape(saved, (math.prod(lead[:-1]), heads, length))
        return da, xp.sum(each, axis=(0, 2))


def sinks(numbers: Array) -> Rule:
    """Let every query of head h give weight to nothing, as to a key of score numbers[h], (H,).

    Two of them in one rule are refused. Source: OpenAI 2025 (gpt-oss), 2.2; Miller 2023 has the
    score 0.

    >>> from pellucid.ops import attention
    >>> x = np.zeros((1, 2, 1))
    >>> attention(x, x, x + 1, rule=sinks(np.zeros(1)))[0][0, 0].round(2)
    array([0.67])
    """
    return Rule(score=(Sinks(numbers),))
