"""What is refused in a study before anything runs: what could not be compared, run or measured."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pellucid.core.errors import UsageError
from pellucid.core.settings import nearest
from pellucid.families.folder import token_error
from pellucid.lab.metrics import NEEDED, check_metric
from pellucid.lab.study import Plan, Study, flat_settings, run_id
from pellucid.models.config import Seq2SeqConfig
from pellucid.training.config import DataConfig, RunConfig

NEVER = 10_000
"""`training.minutes`, a week, that no run of a study comes to: TOML has no word for "unset"."""

SEEDS = 2**32
"""Random numbers take a seed modulo this: one beyond it is another's again."""


def check_study(study: Study) -> None:
    """Raise `UsageError` for the first fault of a study as read."""
    _check_plan(study.plan)
    _check_names(study)
    _check_contrasts(study)
    for name, config in study.variants.items():
        _check_variant(name, config)
        _check_written(study.plan.metrics, name, config)
    _check_distinct(study)


def check_name(name: str, where: str) -> None:
    r"""Raise `UsageError` unless a variant may have this name.

    A name stands in tables, pictures and commands: matplotlib leaves one that begins with _ out of
    legends, a shell reads < and $, and one that begins with - is an option.

    >>> check_name("d_k^2", "changes"); check_name("없음", "changes")
    """
    if not re.fullmatch(r"[^\W_][\w.^+-]*", name):
        raise UsageError(
            f"{where}: a name begins with a letter or a digit, and holds letters, digits and "
            f". ^ + - _ only; got {name!r}"
        )


def check_sides(
    metrics: Sequence[str], name: str, data: DataConfig, valid: bool, test: bool
) -> None:
    """Raise `UsageError` for a metric of pairs put aside where a variant has none put aside."""
    split = "another data.split, or files in data.train and"
    own = "set data.held_out or" if data.train else f"a corpus puts aside what it does: set {split}"
    for metric in metrics:
        if metric in ("valid_loss", "best_valid_loss") and not valid:
            lacking = f"validation pairs; {own} data.valid"
        elif metric == "test_loss" and not test:
            own = "set" if data.train else own
            lacking = f"test pairs; {own} data.test (best_valid_loss is of the validation pairs)"
        elif metric in NEEDED and not (valid or test):
            lacking = f"pairs put aside; {own} data.valid or data.test"
        else:
            continue
        raise UsageError(f"runs of {name} do not write {metric}, for they have no {lacking}")


def _check_plan(plan: Plan) -> None:
    known = {seed for seed in plan.seeds if 0 <= seed < SEEDS}
    if not plan.seeds or len(known) < len(plan.seeds):
        raise UsageError(
            f"seeds: expected different numbers from 0 to {SEEDS - 1}, got {list(plan.seeds)}"
        )
    if not plan.metrics or len(set(plan.metrics)) < len(plan.metrics):
        raise UsageError(
            f"metrics: name at least one thing to measure, each once; got {list(plan.metrics)}"
        )
    judged = [contrast.metric for contrast in plan.primary]
    judged += [figure.metric for figure in plan.reference]
    judged += [bound.metric for bound in plan.bounds]
    for metric in (*plan.metrics, *judged):
        check_metric(metric)
        if metric not in plan.metrics:
            raise UsageError(
                f"{metric} is judged but not among metrics ({', '.join(plan.metrics)}); add it "
                "there"
            )
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
    """Refuse a comparison with itself, and one that stands twice: Holm would count it twice."""
    for name in study.changes:
        against = study.against(name)
        if name == against and name != study.plan.base:
            raise UsageError(f"changes.{name}.against: {name} is compared with itself")
        if name != against and study.against(against) == name:
            raise UsageError(
                f"changes.{name}.against: {name} and {against} are each compared with the other; "
                "leave one of the two out"
            )
    seen = set()
    for contrast in study.plan.primary:
        against = contrast.against or study.against(contrast.change)
        if contrast.change == against:
            raise UsageError(
                f"primary: {against} is compared with itself; change names the variant that is "
                "judged, against what it is judged against"
            )
        asked = (frozenset((contrast.change, against)), contrast.metric)
        if asked in seen:
            raise UsageError(
                f"primary: {contrast.change} and {against} are compared twice by "
                f"{contrast.metric}; leave one of the two out"
            )
        seen.add(asked)


def _check_variant(name: str, config: RunConfig) -> None:
    """Refuse what the lab cannot train, and what it cannot train twice alike."""
    if not isinstance(config.model, Seq2SeqConfig):
        raise UsageError(
            f"{name}: the lab trains encoder-decoders, not model_type {config.model.model_type}; "
            "choose another recipe"
        )
    if fault := token_error(config.model):
        raise UsageError(f"{name}: model.{fault}")
    training = config.training
    never = f"minutes = {NEVER} in [settings.training], which is more than any run takes"
    timed = training.minutes is not None and training.minutes < NEVER
    if training.steps is None and training.epochs is None:
        also = f", and {never}" if timed else ""
        raise UsageError(f"{name}: nothing but the clock ends its runs; set epochs or steps{also}")
    if timed:
        raise UsageError(
            f"{name}: training.minutes = {training.minutes:g} may end its runs, and then the "
            "machine's load is among what is compared; let epochs or steps end them, and set "
            f"{never}"
        )


def _check_written(metrics: Sequence[str], name: str, config: RunConfig) -> None:
    """Refuse a score that a variant does not count, as far as its settings tell."""
    for metric in metrics:
        needed = NEEDED.get(metric)
        if needed is not None and config.evaluation.metric != needed:
            raise UsageError(
                f"runs of {name} do not write {metric}; it needs evaluation.metric = "
                f'"{needed}", and they have "{config.evaluation.metric}"'
            )
    data = config.data
    if data.train:  # what a corpus puts aside is seen when it is read
        valid = bool(data.valid) or data.held_out > 0
        check_sides(metrics, name, data, valid, bool(data.test))


def _check_distinct(study: Study) -> None:
    seen: dict[str, str] = {}
    for name, config in study.variants.items():
        same = seen.setdefault(run_id(_in_one_way(config)), name)
        if same == name:
            continue
        mine, its = flat_settings(config), flat_settings(study.variants[same])
        differs = [
            f"{key} = {its.get(key)} and {mine.get(key)}"
            for key in its | mine
            if its.get(key) != mine.get(key)
        ]
        said = "come to the same settings"
        if differs:
            said = f"train the same model, for all that {'; '.join(differs)}"
        raise UsageError(f"{same} and {name} {said}; a comparison of the two would compare nothing")


def _in_one_way(config: RunConfig) -> RunConfig:
    """Write settings that train the same model in the same way, where that is cheaply seen."""
    model = config.model
    factors = {"embedding_scale": model.token_factor, "position_scale": model.position_factor}
    if model.attention_scale != "learned":
        factors["attention_scale"] = model.score_factor
    numbers: dict[str, Any] = {name: float(f"{factor:.9g}") for name, factor in factors.items()}
    for name in ("embedding_dropout", "attention_dropout", "activation_dropout"):
        p = getattr(model, name)
        numbers[name] = model.dropout if p is None else p
    data = config.data
    if data.train:  # the corpus is not read
        data = replace(data, corpus="", split="", held_out=0.0 if data.valid else data.held_out)
    else:  # nor the corpus cut, but where it says
        data = replace(data, held_out=0.0, columns=None)
    training = replace(config.training, minutes=None)
    return replace(config, data=data, model=replace(model, **numbers), training=training)
