"""Registry of metrics: `METRICS` has each record by its `evaluation.metric` name."""

from pellucid.core.errors import UsageError
from pellucid.core.parts import Registry
from pellucid.tasks.bleu import BLEUS
from pellucid.tasks.error_rates import ERROR_RATES
from pellucid.tasks.labels import LABELS
from pellucid.tasks.metric import Metric

_OURS = (*ERROR_RATES, *BLEUS, LABELS)
METRICS: Registry[Metric] = Registry({each.name: each for each in _OURS})


def higher_is_better() -> dict[str, bool]:
    """Return, for each score that a monitor may use, whether higher is better."""
    return {"loss": False} | {k: v for metric in METRICS.values() for k, v in metric.scores.items()}


def check_metric(name: str, kind: str) -> None:
    """Raise `UsageError` unless a metric is known and scores this kind of task, or is "none"."""
    if name != "none" and METRICS.find(name, "metric").kind != kind:
        whose = "models of labels" if METRICS[name].kind == "label" else "encoder-decoders"
        raise UsageError(f'metric = "{name}" is for {whose}: leave it out')
