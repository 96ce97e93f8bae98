"""Study files: found by name or path, read strictly, every fault named."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from pellucid.config import RunConfig, load_recipe
from pellucid.errors import UsageError
from pellucid.lab.metrics import NEEDED, check_metric
from pellucid.lab.study import FORMAT, Change, Plan, Study, run_id
from pellucid.settings import from_mapping, nearest, read_toml


def study_names() -> list[str]:
    """Return the names of the studies that come with Pellucid."""
    names = [entry.name for entry in (files("pellucid") / "studies").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_study(name: str) -> Study:
    """Return a study by name, or from a TOML file.

    Raises `UsageError` when there is none (suggesting the nearest), and for any fault in it: a
    setting that no recipe has, two changes that come to the same settings, a metric that no run
    writes, a name that is nowhere defined.
    """
    path = Path(name)
    if path.suffix != ".toml":
        if name not in study_names():
            raise UsageError(
                f"no study or TOML file {name!r}{nearest(name, study_names())}; studies: "
                f"{', '.join(study_names())}"
            )
        # Studies are files of the package, which is never zipped: tokenizers stand beside them.
        path = Path(str(files("pellucid") / "studies" / f"{name}.toml"))
    return replace(read_study(path), typed=name)


def read_study(path: Path) -> Study:
    """Read a study file. Raises `UsageError` as `load_study` does."""
    values = read_toml(path)
    base_settings = values.pop("settings", {})
    tables = values.pop("changes", {})
    if values.get("format") != FORMAT:
        raise UsageError(
            f"{path}: study format {values.get('format')!r}, this Pellucid reads format = {FORMAT}"
        )
    plan = from_mapping(Plan, values, str(path))
    _check_plan(plan, path)
    recipe = load_recipe(_beside(path, plan.recipe))
    base = from_mapping(RunConfig, base_settings, f"{path}, settings", recipe)
    changes = {plan.base: Change(plan.about_base)}
    variants = {plan.base: base}
    for change, table in tables.items():
        where = f"{path}, changes.{change}"
        if change in variants:
            raise UsageError(f"{where}: is the name of the base; call it something else")
        if not re.fullmatch(r"[\w.^+-]+", change):
            raise UsageError(f"{where}: a name holds letters, digits and . ^ + - _ only")
        if not isinstance(table, Mapping) or not isinstance(table.get("set"), Mapping):
            raise UsageError(f"{where}: say what it sets: set.model.attention_scale = …")
        rest = {key: value for key, value in table.items() if key != "set"}
        changes[change] = from_mapping(Change, rest, where)
        variants[change] = from_mapping(RunConfig, table["set"], where, base)
    _check_names(plan, changes, path)
    _check_written(plan, variants, path)
    _check_distinct(variants, path)
    return Study(
        path.stem,
        plan,
        changes,
        variants,
        _read_tokenizer(path, plan),
        source=path.read_text("utf-8"),
        typed=str(path),
    )


def _beside(path: Path, recipe: str) -> str:
    return str(path.parent / recipe) if recipe.endswith(".toml") else recipe


def _read_tokenizer(path: Path, plan: Plan) -> str:
    if not plan.tokenizer:
        return ""
    file = path.parent / plan.tokenizer
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: tokenizer: {file}: {error.strerror}") from None


def _check_plan(plan: Plan, path: Path) -> None:
    if not plan.seeds or len(set(plan.seeds)) < len(plan.seeds):
        raise UsageError(f"{path}: seeds: expected different numbers, got {list(plan.seeds)}")
    if not plan.metrics:
        raise UsageError(f"{path}: metrics: name at least one thing to measure")
    judged = [contrast.metric for contrast in plan.primary]
    judged += [figure.metric for figure in plan.reference]
    judged += [bound.metric for bound in plan.bounds]
    for metric in (*plan.metrics, *judged):
        try:
            check_metric(metric)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        if metric not in plan.metrics:
            raise UsageError(
                f"{path}: {metric} is judged but not among metrics ({', '.join(plan.metrics)}); "
                "add it there"
            )
    for name in ("minutes_per_run", "gigabytes_per_run"):
        value = getattr(plan, name)
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{path}: {name} must be above 0, got {value}")


def _check_names(plan: Plan, changes: Mapping[str, Change], path: Path) -> None:
    named = [(f"changes.{name}.against", change.against) for name, change in changes.items()]
    for contrast in plan.primary:
        named += [("primary.change", contrast.change), ("primary.against", contrast.against)]
    named += [("reference.change", figure.change) for figure in plan.reference]
    named += [("bounds.change", bound.change) for bound in plan.bounds]
    for where, name in named:
        if name and name not in changes:
            raise UsageError(
                f"{path}: {where}: there is no {name!r}{nearest(name, changes)}; there are: "
                f"{', '.join(changes)}"
            )
    for name, change in changes.items():
        if change.seeds is not None and not 1 <= change.seeds <= len(plan.seeds):
            raise UsageError(
                f"{path}: changes.{name}.seeds: expected 1 to {len(plan.seeds)} (as many as the "
                f"study has), got {change.seeds}"
            )


def _check_written(plan: Plan, variants: Mapping[str, RunConfig], path: Path) -> None:
    """Refuse a score that some variant does not even count."""
    for metric in plan.metrics:
        needed = NEEDED.get(metric)
        for name, config in variants.items():
            if needed is not None and config.evaluation.metric != needed:
                raise UsageError(
                    f"{path}: runs of {name} do not write {metric}; it needs "
                    f'evaluation.metric = "{needed}", and they have "{config.evaluation.metric}"'
                )


def _check_distinct(variants: Mapping[str, RunConfig], path: Path) -> None:
    seen: dict[str, str] = {}
    for name, config in variants.items():
        if (same := seen.setdefault(run_id(config), name)) != name:
            raise UsageError(
                f"{path}: {same} and {name} come to the same settings; a comparison of the two "
                "would compare nothing"
            )
