"""Preflight checks of a study: can it be run, measured and compared?"""

import math
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from pellucid.apps.lab.measures import MEASURES
from pellucid.apps.lab.metrics import find_metric
from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.study import Bound, Contrast, Plan, Reference, Study, Trial, run_id
from pellucid.apps.lab.trial import data_digest, other_data
from pellucid.core.errors import UsageError, UserError, raised_as
from pellucid.core.settings import check_known
from pellucid.data.pairs import Splits
from pellucid.models.config import Seq2SeqConfig
from pellucid.tasks.task import token_error
from pellucid.training.config import DataConfig, RunConfig
from pellucid.training.experiment import check_scores, read_data

UNLIMITED = 10_000
"""`training.minutes` of a week: effectively unlimited, because TOML has no null to unset it."""

SEEDS = 2**32
"""Random generators take a seed modulo this, so a larger one would repeat another."""


def check_study(study: Study) -> None:
    """Check a study as read. Raises `UsageError` for the first error."""
    checks = (_plan_errors(study.plan), _name_errors(study), _contrast_errors(study))
    variants = (_variant_errors(study, name, config) for name, config in study.variants.items())
    for error in chain(*checks, *variants, _repeated_variants(study)):
        raise UsageError(error)


def check_name(name: str, where: str) -> None:
    r"""Raise `UsageError`, naming `where`, for a name that a study may not use.

    A name begins with a letter or digit and holds only letters, digits and . ^ + - _. Names appear
    in tables, pictures and shell commands: < and $ mean something to a shell, and a leading -
    begins an option.

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
    """Check that a variant has the held-out data that the metrics need.

    parts: those of "valid" and "test" that it has. Raises `UsageError` if a metric's data is
    missing.
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


def check_ready(study: Study, trials: Sequence[Trial], results: Path) -> None:
    """Read the data of all trials, and check that they can be trained and compared.

    results: the results file; earlier runs in it must have used the same data.

    Raises `UserError` for data that is missing or damaged, data without the held-out pairs that a
    metric needs, a score to monitor that a variant's runs will not have, data that changed since a
    run was done, and a package that is not installed.
    """
    read: dict[object, tuple[Splits, str]] = {}

    def key(config: RunConfig) -> object:
        """Return the settings that determine the pairs and their split."""
        return config.data, config.tokenizer.normalise, config.tokenizer.kind == "word"

    for change in dict.fromkeys(trial.change for trial in trials):
        config = study.variants[change]
        if key(config) not in read:
            pairs = read_data(config)
            read[key(config)] = pairs, data_digest(pairs)
        pairs = read[key(config)][0]
        with raised_as(UsageError, UsageError, where=change):
            check_scores(config, pairs)
        parts = [part for part in ("valid", "test") if getattr(pairs, part)]
        check_held_out(study.plan.metrics, change, config.data, parts)
    lines = read_results(results)
    for trial in study.trials():
        before = lines.get(trial.id, {}).get("data")
        _, now = read.get(key(trial.config), (None, None))
        if before and now and before != now:
            raise UserError(
                f"{results}: {trial.change} with seed {trial.seed} was trained on "
                f"{other_data(before, now)}; put the data back, use another results file and "
                "folder, or delete this file and the runs folder and do all runs again"
            )


def _plan_errors(plan: Plan) -> Iterator[str]:
    """Yield errors in the seeds, metrics, measures, claims and budgets of a study."""
    known = {seed for seed in plan.seeds if 0 <= seed < SEEDS}
    if not plan.seeds or len(known) < len(plan.seeds):
        yield f"seeds: expected different numbers from 0 to {SEEDS - 1}, got {list(plan.seeds)}"
    if not plan.metrics or len(set(plan.metrics)) < len(plan.metrics):
        yield f"metrics: name at least one metric, each once; got {list(plan.metrics)}"
    for name in plan.measures:
        check_known("measure", name, MEASURES)
    of: Iterable[Contrast | Reference | Bound] = (*plan.primary, *plan.reference, *plan.bounds)
    used = [one.metric for one in of]
    for metric in (*plan.metrics, *used):
        measure = find_metric(metric).measure
        if metric not in plan.metrics:
            listed = ", ".join(plan.metrics)
            yield f"{metric} is used but not among metrics ({listed}); add it there"
        if measure and measure not in plan.measures:
            yield f"{metric} needs the measure {measure!r}; add it to measures"
    if plan.frame_source and not plan.tokenizer:
        yield "frame_source needs a tokenizer: name a tokenizer.json next to the study"
    for bound in plan.bounds:
        if bound.at_least is None and bound.at_most is None:
            yield f"bounds: {bound.claim!r} bounds nothing; set at_least or at_most"
    for name in ("minutes_per_run", "gigabytes_per_run"):
        if not 0 < getattr(plan, name) < math.inf:
            yield f"{name} must be above 0, got {getattr(plan, name)}"


def _name_errors(study: Study) -> Iterator[str]:
    """Yield errors in references to variants, and in their numbers of seeds."""
    plan, changes = study.plan, study.changes
    named = [
        *((f"changes.{name}.against", study.against(name)) for name in changes),
        *(("primary.change", contrast.change) for contrast in plan.primary),
        *(("primary.against", contrast.against or plan.base) for contrast in plan.primary),
        *(("reference.change", figure.change) for figure in plan.reference),
        *(("bounds.change", bound.change) for bound in plan.bounds),
    ]
    for where, name in named:
        check_known(f"variant for {where}", name, changes)
    for name, change in changes.items():
        if change.seeds is not None and not 1 <= change.seeds <= len(plan.seeds):
            expected = f"expected 1 to {len(plan.seeds)} (as many as the study has)"
            yield f"changes.{name}.seeds: {expected}, got {change.seeds}"


def _contrast_errors(study: Study) -> Iterator[str]:
    """Yield errors for variants compared with themselves, and comparisons stated twice.

    Holm's correction would count the second one again.
    """
    for name in study.changes:
        against, where = study.against(name), f"changes.{name}.against"
        if name == against and name not in (study.plan.base, *study.points):
            yield f"{where}: {name} is compared with itself"
        if name != against and study.against(against) == name:
            both = f"{name} and {against} are each compared with the other"
            yield f"{where}: {both}; remove one of the two"
    seen = set()
    for contrast in map(study.complete, study.plan.primary):
        change, against = contrast.change, contrast.against
        if change == against:
            yield (
                f"primary: {change} is compared with itself; set change or against to another "
                "variant"
            )
        if contrast.asked in seen:
            both = f"{change} and {against} are compared twice by {contrast.metric}"
            yield f"primary: {both}; remove one of the two"
        seen.add(contrast.asked)


def _variant_errors(study: Study, name: str, config: RunConfig) -> Iterator[str]:
    """Yield errors for settings that the lab cannot train, and for missing metrics."""
    if not isinstance(config.model, Seq2SeqConfig):
        yield (
            f"{name}: the lab trains encoder-decoders, not model_type {config.model.model_type}; "
            "choose another recipe"
        )
    if config.start is not None:
        yield f"{name}: a study's runs begin with new models; leave out [start]"
    if error := token_error(config.model):
        yield f"{name}: model.{error}"
    training = config.training
    unlimited = f"minutes = {UNLIMITED} in [settings.training]"
    timed = training.minutes is not None and training.minutes < UNLIMITED
    if training.steps is None and training.epochs is None:
        also = f", and {unlimited}" if timed else ""
        yield f"{name}: only the clock ends its runs; set epochs or steps{also}"
    if timed:
        yield (
            f"{name}: training.minutes = {training.minutes:g} may end its runs, and then machine "
            f"load would affect the comparison; set epochs or steps, and {unlimited}"
        )
    for metric in study.plan.metrics:
        needed = find_metric(metric).evaluation
        if needed and config.evaluation.metric not in needed:
            yield (
                f"runs of {name} do not write {metric}; it needs evaluation.metric = "
                f'"{needed[0]}", and they have "{config.evaluation.metric}"'
            )
    data = config.data
    if data.train:  # a corpus shows what it holds out only when it is read
        parts = ["valid"] * (bool(data.valid) or data.held_out > 0) + ["test"] * bool(data.test)
        check_held_out(study.plan.metrics, name, data, parts)


def _repeated_variants(study: Study) -> Iterator[str]:
    """Yield an error for two variants with the same settings: their runs are the same."""
    seen: dict[str, str] = {}
    for name, config in study.variants.items():
        same = seen.setdefault(run_id(config), name)
        if same != name:
            yield (
                f"{same} and {name} train the same model: they have the same settings; change one "
                "or remove it"
            )
