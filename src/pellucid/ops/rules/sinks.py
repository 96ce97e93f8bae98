"""Attention sinks: an extra score in each head, so that a query may attend to nothing."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pellucid.core.array import Array, namespace
from pellucid.ops.rule import Rule, Score, check_heads


@dataclass(frozen=True, eq=False)
class Sinks(Score):
    """Adds a column of scores c_h, which the softmax counts and then drops; the last part."""

    numbers: Array

    last: ClassVar[bool] = True

    @property
    def parameters(self) -> tuple[Array, ...]:
        """The scores c of the sinks, (H,)."""
        return (self.numbers,)

    def forward(self, a: Array, distance: np.ndarray) -> tuple[Array, Any]:
        """Return the scores unchanged: a sink only adds e^c_h to the softmax's denominator."""
        check_heads(self.parameters, a.shape[-3] if a.ndim > 2 else 1)
        return a, None

    def backward(self, da: Array, saved: Any) -> tuple[Array, ...]:
        """Return da and dc; `saved` is the dA of the sinks, (…, L, 1), which attention computes."""
        xp, heads = namespace(saved), self.numbers.shape[0]
        *lead, length, _ = da.shape
        each = xp.reshape(saved, (math.prod(lead[:-1]), heads, length))
        return da, xp.sum(each, axis=(0, 2))


def sinks(numbers: Array) -> Rule:
    """Add a learned sink to each head: an extra key with score numbers[h] and value zero.

    numbers: (H,). A rule may have only one such part (else `ValueError`). Source: OpenAI 2025
    (gpt-oss), 2.2; Miller 2023 with the fixed score 0.

    >>> from pellucid.ops import attention
    >>> x = np.zeros((1, 2, 1))
    >>> attention(x, x, x + 1, rule=sinks(np.zeros(1)))[0][0, 0].round(2)
    array([0.67])
    """
    return Rule(score=(Sinks(numbers),))
