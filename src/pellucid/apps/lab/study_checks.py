"""What is refused in a study before anything runs: what could not be compared, run or measured."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Sequence

from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import find_metric
from pellucid.apps.lab.study import Plan, Study, run_id
from pellucid.core.errors import UsageError
from pellucid.core.settings import nearest
from pellucid.models.config import Seq2SeqConfig
from pellucid.tasks.task import token_error
from pellucid.training.config import DataConfig, RunConfig

UNLIMITED = 10_000
"""`training.minutes`, a week: effectively unlimited. TOML has no null to unset it."""

SEEDS = 2**32
"""Random numbers take a seed modulo this, so a larger one repeats another."""


def check_study(study: Study) -> None:
    """Raise `UsageError` for the first error in a study as read."""
    _check_plan(study.plan)
    _check_names(study)
    _check_contrasts(study)
    for name, config in study.variants.items():
        _check_variant(name, config)
        _check_scores(study.plan.metrics, name, config)
    _check_distinct(study)


def check_name(name: str, where: str) -> None:
    r"""Raise `UsageError` unless a variant may have this name.

    Names appear in tables, pictures and shell commands: < and $ mean something to a shell, and a
    leading - begins an option.

    >>> check_name("d_k^2", "changes"); check_name("없음", "changes")
    """
    if not re.fullmatch(r"[^\W_][\w.^+-]*", name):
        raise UsageError(
            f"{where}: a name begins with a letter or a digit and holds only letters, digits and "
            f". ^ + - _; got {name!r}"
        )


def check_held_out(
    metrics: Sequence[str], name: str, data: DataConfig, parts: Container[str]
) -> None:
    """Raise `UsageError` for a metric of held-out pairs that a variant does not have.

    parts: those of "valid" and "test" that it has.
    """
    kinds = {"valid": "validation pairs", "test": "test pairs"}
    for metric in metrics:
        needed = find_metric(metric).held_out
        if not needed or any(part in parts for part in needed):
            continue
        if data.train:
            settings = " or ".join(f"data.{part}" for part in needed)
            remedy = f"set data.held_out or {settings}" if "valid" in needed else f"set {settings}"
        else:
            remedy = "set another data.split, or files in data.train"
        raise UsageError(
            f"runs of {name} do not write {metric}, because they have no "
            f"{' or '.join(kinds[part] for part in needed)}; {remedy}"
        )


def _check_plan(plan: Plan) -> None:
    known = {seed for seed in plan.seeds if 0 <= seed < SEEDS}
    if not plan.seeds or len(known) < len(plan.seeds):
        raise UsageError(
            f"seeds: expected different numbers from 0 to {SEEDS - 1}, got {list(plan.seeds)}"
        )
    if not plan.metrics or len(set(plan.metrics)) < len(plan.metrics):
        raise UsageError(f"metrics: name at least one metric, each once; got {list(plan.metrics)}")
    for measure in plan.measures:
        if measure not in MEASURES:
            raise UsageError(
                f"measures: there is no {measure!r}{nearest(measure, MEASURES)}; there are: "
                f"{', '.join(MEASURES)}"
            )
    used = [contrast.metric for contrast in plan.primary]
    used += [figure.metric for figure in plan.reference]
    used += [bound.metric for bound in plan.bounds]
    for metric in (*plan.metrics, *used):
        measure = find_metric(metric).measure
        if metric not in plan.metrics:
            raise UsageError(
                f"{metric} is used but not among metrics ({', '.join(plan.metrics)}); add it there"
            )
        if measure and measure not in plan.measures:
            raise UsageError(f"{metric} needs the measure {measure!r}; add it to measures")
    for bound in plan.bounds:
        if bound.at_least is None and bound.at_most is None:
            raise UsageError(f"bounds: {bound.claim!r} bounds nothing; set at_least or at_most")
    for name in ("minutes_per_run", "gigabytes_per_run"):
        value = getattr(plan, name)
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{name} must be above 0, got {value}")


def _check_names(study: Study) -> None:
    plan, changes = study.plan, study.changes
    named = [("primary.change", contrast.change) for contrast in plan.primary]
    named += [("reference.change", figure.change) for figure in plan.reference]
    named += [("bounds.change", bound.change) for bound in plan.bounds]
    given = [(f"changes.{name}.against", change.against) for name, change in changes.items()]
    given += [("primary.against", contrast.against) for contrast in plan.primary]
    for where, name in [*named, *((where, name) for where, name in given if name)]:
        if name not in changes:
            raise UsageError(
                f"{where}: there is no {name!r}{nearest(name, changes)}; there are: "
                f"{', '.join(changes)}"
            )
    for name, change in changes.items():
        if change.seeds is not None and not 1 <= change.seeds <= len(plan.seeds):
            raise UsageError(
                f"changes.{name}.seeds: expected 1 to {len(plan.seeds)} (as many as the study "
                f"has), got {change.seeds}"
            )


def _check_contrasts(study: Study) -> None:
    """Refuse a variant compared with itself, and a comparison given twice: Holm counts both."""
    for name in study.changes:
        against = study.against(name)
        if name == against and name != study.plan.base:
            raise UsageError(f"changes.{name}.against: {name} is compared with itself")
        if name != against and study.against(against) == name:
            raise UsageError(
                f"changes.{name}.against: {name} and {against} are each compared with the other; "
                "remove one of the two"
            )
    seen = set()
    for contrast in study.plan.primary:
        against = contrast.against or study.against(contrast.change)
        if contrast.change == against:
            raise UsageError(
                f"primary: {against} is compared with itself; set change or against to another "
                "variant"
            )
        asked = (frozenset((contrast.change, against)), contrast.metric)
        if asked in seen:
            raise UsageError(
                f"primary: {contrast.change} and {against} are compared twice by "
                f"{contrast.metric}; remove one of the two"
            )
        seen.add(asked)


def _check_variant(name: str, config: RunConfig) -> None:
    """Refuse what the lab cannot train, or not twice alike."""
    if not isinstance(config.model, Seq2SeqConfig):
        raise UsageError(
            f"{name}: the lab trains encoder-decoders, not model_type {config.model.model_type}; "
            "choose another recipe"
        )
    if error := token_error(config.model):
        raise UsageError(f"{name}: model.{error}")
    training = config.training
    unlimited = f"minutes = {UNLIMITED} in [settings.training]"
    timed = training.minutes is not None and training.minutes < UNLIMITED
    if training.steps is None and training.epochs is None:
        also = f", and {unlimited}" if timed else ""
        raise UsageError(f"{name}: only the clock ends its runs; set epochs or steps{also}")
    if timed:
        raise UsageError(
            f"{name}: training.minutes = {training.minutes:g} may end its runs, and then machine "
            f"load would affect the comparison; set epochs or steps, and {unlimited}"
        )


def _check_scores(metrics: Sequence[str], name: str, config: RunConfig) -> None:
    """Refuse a metric that a variant does not compute, as far as its settings tell."""
    for metric in metrics:
        needed = find_metric(metric).evaluation
        if needed and config.evaluation.metric != needed:
            raise UsageError(
                f"runs of {name} do not write {metric}; it needs evaluation.metric = "
                f'"{needed}", and they have "{config.evaluation.metric}"'
            )
    data = config.data
    if data.train:  # a corpus shows what it holds out only when it is read
        parts = ["valid"] * (bool(data.valid) or data.held_out > 0) + ["test"] * bool(data.test)
        check_held_out(metrics, name, data, parts)


def _check_distinct(study: Study) -> None:
    """Refuse two variants with the same settings: they would be the same runs."""
    seen: dict[str, str] = {}
    for name, config in study.variants.items():
        same = seen.setdefault(run_id(config), name)
        if same != name:
            raise UsageError(
                f"{same} and {name} train the same model: they have the same settings; change one "
                "or remove it"
            )
