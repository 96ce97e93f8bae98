"""What the width of a head does to softmax, and what the number of keys does: two things.

Queries and keys are drawn from N(0, 1), so Var[q·k] = d_k. Seed 003 lets d_k decide how near to 0
the weights come; their mean is one over the number of keys whatever d_k is, and d_k without its
scale decides how much of the whole one of them takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pellucid.lab.probe import row_statistics

DRAWS, SEED = 2000, 0
SCALES = {"not scaled": 0.0, "/ √d_k": 0.5, "/ d_k": 1.0}
"""What the scores are divided by: d_k to this power."""


def softmax_at(d_k: int, keys: int, power: float) -> dict[str, float]:
    """Return the means of `row_statistics` over random queries at q·k / d_k^power.

    And `through`, the Jacobian times the scale: the size of the derivative by q·k.

    >>> round(softmax_at(8, 8, 0.0)["top"], 2), round(softmax_at(512, 8, 0.0)["top"], 2)
    (0.64, 0.96)
    """
    draws = np.random.default_rng(SEED)
    q = draws.standard_normal((DRAWS, 1, d_k))
    k = draws.standard_normal((DRAWS, keys, d_k))
    scores = (q @ k.swapaxes(1, 2))[:, None] / d_k**power
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    found = row_statistics(weights, np.ones((DRAWS, 1, keys), bool))
    means = {name: float(values.mean()) for name, values in found.items()}
    return {**means, "through": means["jacobian"] / d_k**power}


def sweep(
    what: str, widths: Sequence[int], keys: Sequence[int]
) -> dict[str, tuple[list[float], list[float]]]:
    """Return, by scale, (x, mean of `what`): over `widths` or `keys`, whichever has several."""
    over = widths if len(widths) > 1 else keys
    pairs = [(d, n) for d in widths for n in keys]
    return {
        name: ([float(x) for x in over], [softmax_at(d, n, power)[what] for d, n in pairs])
        for name, power in SCALES.items()
    }
