"""What the width of a head and the number of keys do to softmax, computed without a model.

Queries and keys are drawn from N(0, 1), so Var[q·k] = d_k. Article 003 says that a larger d_k moves
the weights towards 0. Their mean is one over the number of keys, whatever d_k is; an unscaled d_k
decides how much of the total weight a single key takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pellucid.lab.document import Block, Plot
from pellucid.lab.measures.attention import row_statistics
from pellucid.lab.measures.measure import Measure
from pellucid.lab.plots import Curves, draw_grid

if TYPE_CHECKING:
    from pellucid.lab.findings import Findings

DRAWS, SEED = 2000, 0
SCALES = {"not scaled": 0.0, "/ √d_k": 0.5, "/ d_k": 1.0}
"""What the scores are divided by: d_k to this power."""
STATISTICS = {"‖Jacobian‖": "jacobian", "scale · ‖Jacobian‖": "through", "largest weight": "top"}
SWEEPS = {
    "over d_k, 8 keys": [(d_k, 8) for d_k in (8, 16, 32, 64, 128, 256, 512)],
    "over the number of keys, d_k = 32": [(32, keys) for keys in (2, 4, 8, 16, 32, 64, 128)],
}
"""Splits of d_k and the number of keys."""


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


def show(findings: Findings) -> Sequence[Block]:
    """Return one picture, the same for every study."""
    curves: dict[tuple[str, str], Curves] = {}
    for column, pairs in SWEEPS.items():
        xs = [float(d_k if len({keys for _, keys in pairs}) == 1 else keys) for d_k, keys in pairs]
        found = {
            name: [softmax_at(*pair, power) for pair in pairs] for name, power in SCALES.items()
        }
        for title, statistic in STATISTICS.items():
            curves[title, column] = {
                name: [(xs, [means[statistic] for means in row])] for name, row in found.items()
            }
    title = "Softmax of random scores, no model"
    return [
        Plot(
            "softmax.svg",
            title,
            draw_grid(list(STATISTICS), list(SWEEPS), curves, title, "d_k, or keys", base=2),
            "Random queries and keys with unit variances. With / √d_k nothing depends on d_k; "
            "without a scale d_k decides the largest weight. The number of keys sets the mean "
            "weight under every scale. Queries and keys receive what softmax lets through times "
            "the scale (second row): this is where / d_k pays for its flat weights.",
        )
    ]


MEASURE = Measure(
    "softmax", "Softmax without a model", "softmax of random q·k over d_k and over keys", show=show
)
