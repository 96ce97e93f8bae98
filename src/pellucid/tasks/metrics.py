"""Metrics: `METRICS` has the record of each by the name that `evaluation.metric` gives it."""

from __future__ import annotations

from pellucid.tasks.bleu import BLEU_CHRF
from pellucid.tasks.error_rates import ERROR_RATES
from pellucid.tasks.metric import Metric

METRICS: dict[str, Metric] = {metric.name: metric for metric in (ERROR_RATES, BLEU_CHRF)}

SCORES = {name: dict(metric.scores) for name, metric in METRICS.items()}
"""The held-out scores that each metric gives, and whether a higher one is better."""

HIGHER_IS_BETTER = {"loss": False} | {
    name: higher for scores in SCORES.values() for name, higher in scores.items()
}
"""Whether a higher value is better, of every score that a monitor may name."""
