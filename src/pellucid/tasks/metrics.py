"""Registry of metrics: `METRICS` has each record by its `evaluation.metric` name."""

from pellucid.core.parts import Registry
from pellucid.tasks.bleu import BLEUS
from pellucid.tasks.error_rates import ERROR_RATES
from pellucid.tasks.labels import LABELS
from pellucid.tasks.metric import Metric

_OURS = (ERROR_RATES, *BLEUS, LABELS)
METRICS: Registry[Metric] = Registry({each.name: each for each in _OURS})


def higher_is_better() -> dict[str, bool]:
    """Return, for each score that a monitor may use, whether higher is better."""
    return {"loss": False} | {k: v for metric in METRICS.values() for k, v in metric.scores.items()}
