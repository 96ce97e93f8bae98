"""Metrics: `METRICS` has the record of each by the name that `evaluation.metric` gives it."""

from pellucid.core.parts import Registry
from pellucid.tasks.bleu import BLEUS
from pellucid.tasks.error_rates import ERROR_RATES
from pellucid.tasks.labels import LABELS
from pellucid.tasks.metric import Metric

_OURS = (ERROR_RATES, *BLEUS, LABELS)
METRICS: Registry[Metric] = Registry({each.name: each for each in _OURS})


def higher_is_better() -> dict[str, bool]:
    """Return whether a higher value is better, of every score that a monitor may name."""
    return {"loss": False} | {k: v for metric in METRICS.values() for k, v in metric.scores.items()}
