"""What can be measured of a run: numbers taken from its learning curve, its scores, its insides.

train_loss           nats per answer over the last whole epoch (none where steps end a run before
                     one is): the batches' summed losses over the number of answers, weights
                     changing and dropout on meanwhile, as seed 003 prints
train_loss_token     the same per target token
epochs_to_X          the first whole epoch whose train_loss is at most X; infinite when none's was
valid_loss           nats per target token on the validation pairs, at the end
best_valid_loss      the lowest of all validations
test_loss            nats per target token on the pairs put aside for the end, with the weights that
                     the settings choose; bleu, bleu_lower, chrf, per and wer likewise
dead_units           share of feed-forward units without any gradient on the probe's batch
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.core.settings import nearest
from pellucid.evaluation.metrics import HIGHER_IS_BETTER, SCORES

METRICS = (
    "train_loss",
    "train_loss_token",
    "valid_loss",
    "best_valid_loss",
    "test_loss",
    "bleu",
    "bleu_lower",
    "chrf",
    "per",
    "wer",
    "dead_units",
)
NEEDED = {name: metric for metric, scores in SCORES.items() for name in scores}
"""The `evaluation.metric` without which a score is not counted."""
_EPOCHS_TO = re.compile(r"epochs_to_(\d+(?:\.\d+)?)")

UNITS = {
    "train_loss": "nats per answer",
    "train_loss_token": "nats per token",
    "valid_loss": "nats per token",
    "best_valid_loss": "nats per token",
    "test_loss": "nats per token",
    "dead_units": "share of units",
}


def check_metric(name: str) -> None:
    """Raise `UsageError` when no run writes a metric of this name.

    >>> check_metric("epochs_to_1.0")
    """
    if name not in METRICS and not _EPOCHS_TO.fullmatch(name):
        raise UsageError(
            f"no run writes a metric {name!r}{nearest(name, METRICS)}; there are: "
            f"{', '.join(METRICS)}, epochs_to_X"
        )


def lower_is_better(name: str) -> bool:
    """Return which way a metric should go.

    >>> lower_is_better("best_valid_loss"), lower_is_better("bleu")
    (True, False)
    """
    return not HIGHER_IS_BETTER.get(name, False)


def unit(name: str) -> str:
    """Return what a metric is counted in.

    >>> unit("epochs_to_1.0")
    'epochs'
    """
    return "epochs" if _EPOCHS_TO.fullmatch(name) else UNITS.get(name, "")


def written(value: float) -> str:
    """Write a value of a metric: four digits.

    >>> written(4.41899), written(math.inf)
    ('4.419', 'never')
    """
    return f"{value:.4g}" if math.isfinite(value) else "never"


def measure(
    curve: Mapping[str, Sequence[float | None]],
    scores: Mapping[str, float],
    probes: Sequence[Mapping[str, Any]],
) -> dict[str, float]:
    """Return every metric that the parts of a result hold, thresholds apart.

    scores: under the metrics' names; what no metric is called is left out.

    >>> curve = {"epoch": [1.0, 2.0], "train": [9.0, 4.0], "train_token": [2.0, 1.0], "valid": []}
    >>> measure(curve, {}, [])
    {'train_loss': 4.0, 'train_loss_token': 1.0}
    """
    found: dict[str, float | None] = {}
    if curve["train"]:
        found["train_loss"] = curve["train"][-1]
        found["train_loss_token"] = curve["train_token"][-1]
    if valid := [loss for loss in curve["valid"] if loss is not None]:
        found["valid_loss"], found["best_valid_loss"] = valid[-1], min(valid)
    found |= scores
    if probes and probes[-1].get("dead"):
        shares = list(probes[-1]["dead"].values())
        found["dead_units"] = sum(shares) / len(shares)
    return {k: v for k, v in found.items() if k in METRICS and v is not None and math.isfinite(v)}


def value_of(result: Mapping[str, Any], metric: str) -> float | None:
    """Return one metric of a finished run's line, or None where the run has none.

    >>> curve = {"epoch": [1.0, 2.0, 3.0], "train": [9.0, 0.8, 0.9]}
    >>> line = {"metrics": {}, "curve": curve}
    >>> value_of(line, "epochs_to_1.0"), value_of(line, "epochs_to_0.5"), value_of(line, "bleu")
    (2.0, inf, None)
    """
    if match := _EPOCHS_TO.fullmatch(metric):
        limit, curve = float(match[1]), result["curve"]
        if not curve["epoch"]:
            return None
        passed = zip(curve["epoch"], curve["train"], strict=False)
        return next((epoch for epoch, loss in passed if loss <= limit), math.inf)
    value = result["metrics"].get(metric)
    return None if value is None else float(value)
