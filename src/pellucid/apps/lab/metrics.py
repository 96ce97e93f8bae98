"""Metrics of a finished run that a study can compare."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pellucid.apps.lab.wording import tr
from pellucid.core.settings import check_known
from pellucid.tasks.metrics import METRICS as EVALUATIONS


@dataclass(frozen=True)
class Metric:
    """A number of a finished run; docs/lab.md explains each one."""

    name: str
    unit: str = ""
    better: Literal["lower", "higher"] = "lower"
    held_out: tuple[str, ...] = ()
    """Parts of the data that it is computed on, "valid" or "test"; any of them suffices. Empty: on
    the training data."""
    evaluation: tuple[str, ...] = ()
    """Values of `evaluation.metric` that compute it, the usual one first; empty: any value does."""
    measure: str = ""
    """Name of the measure that records it, if any."""

    @property
    def label(self) -> str:
        """Name with unit, for a table column or an axis."""
        return f"{self.name} ({tr(self.unit)})" if self.unit else self.name


TOKEN = "nats per token"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("train_loss", "nats per answer"),
        Metric("train_loss_token", TOKEN),
        Metric("valid_loss", TOKEN, held_out=("valid",)),
        Metric("best_valid_loss", TOKEN, held_out=("valid",)),
        Metric("test_loss", TOKEN, held_out=("test",)),
        Metric("dead_units", "share of units", measure="dead_units"),
    )
}
_EPOCHS_TO = re.compile(r"epochs_to_(\d+(?:\.\d+)?)")
"""Metric epochs_to_X: the first epoch after which the training loss is at most X nats an answer."""


def find_metric(name: str) -> Metric:
    """Return the record of a metric. Raises `UsageError` for an unknown name.

    >>> find_metric("bleu").better, find_metric("epochs_to_1.0").unit
    ('higher', 'epochs')
    """
    if _EPOCHS_TO.fullmatch(name):
        return Metric(name, "epochs")
    known = all_metrics()
    check_known("metric", name, (*known, "epochs_to_X"))
    return known[name]


def all_metrics() -> dict[str, Metric]:
    """Return the records of all metrics by name, with the scores of evaluation.

    All but epochs_to_X, which exist for any X.
    """
    giving: dict[str, list[str]] = {}
    for metric in EVALUATIONS.values():
        for name in metric.scores:
            giving.setdefault(name, []).append(metric.name)
    return METRICS | {
        name: Metric(
            name,
            "",
            "higher" if EVALUATIONS[names[0]].scores[name] else "lower",
            ("valid", "test"),
            tuple(names),
        )
        for name, names in giving.items()
    }


def format_value(value: float, form: str = ".4g") -> str:
    """Format a number; infinity, an event that never happened, becomes "never" (translated).

    >>> format_value(4.41899), format_value(math.inf)
    ('4.419', 'never')
    """
    return f"{value:{form}}" if math.isfinite(value) else tr("never")


def format_spread(values: Sequence[float], form: str = ".3g") -> str:
    """Format values as "median (minimum to maximum)"; one value alone, none as a dash.

    >>> format_spread([3.0, 1.0, 2.0]), format_spread([0.5]), format_spread([])
    ('2 (1 to 3)', '0.5', '–')
    """
    if not values:
        return "–"
    middle = format_value(float(np.median(values)), form)
    if len(values) == 1:
        return middle
    low, high = (format_value(v, form) for v in (min(values), max(values)))
    return tr("{median} ({low} to {high})", median=middle, low=low, high=high)


def metrics_of(
    curve: Mapping[str, Sequence[float | None]],
    scores: Mapping[str, float],
    probes: Sequence[Mapping[str, Any]],
) -> dict[str, float]:
    """Collect all metrics of a finished run, except epochs_to_X.

    curve: as `learning_curve` returns it. scores: from the final evaluation; unknown names are
    ignored. probes: as `read_probes` returns them. Values that are not finite are left out.

    >>> curve = {"epoch": [1.0, 2.0], "train": [9.0, 4.0], "train_token": [2.0, 1.0], "valid": []}
    >>> metrics_of(curve, {"ignored": 1.0}, [])
    {'train_loss': 4.0, 'train_loss_token': 1.0}
    """
    found: dict[str, float | None] = {}
    if curve["train"]:
        found["train_loss"] = curve["train"][-1]
        found["train_loss_token"] = curve["train_token"][-1]
    if valid := [loss for loss in curve["valid"] if loss is not None]:
        found["valid_loss"], found["best_valid_loss"] = valid[-1], min(valid)
    found |= scores
    if probes and (dead := probes[-1].get("dead")):
        found["dead_units"] = sum(dead.values()) / len(dead)
    known = all_metrics()
    return {k: v for k, v in found.items() if k in known and v is not None and math.isfinite(v)}


def value_of(line: Mapping[str, Any], metric: str) -> float | None:
    """Return one metric from a finished run's line of results, or None if it has none.

    epochs_to_X is infinite if no epoch reached X.

    >>> curve = {"epoch": [1.0, 2.0, 3.0], "train": [9.0, 0.8, 0.9]}
    >>> line = {"metrics": {}, "curve": curve}
    >>> value_of(line, "epochs_to_1.0"), value_of(line, "epochs_to_0.5"), value_of(line, "bleu")
    (2.0, inf, None)
    """
    if match := _EPOCHS_TO.fullmatch(metric):
        limit, curve = float(match[1]), line["curve"]
        if not curve["epoch"]:
            return None
        both = zip(curve["epoch"], curve["train"], strict=False)
        reached = (epoch for epoch, loss in both if loss is not None and loss <= limit)
        return next(reached, math.inf)
    value = line["metrics"].get(metric)
    return None if value is None else float(value)
