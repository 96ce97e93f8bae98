"""A study: one recipe, a few named changes of its settings, seeds, and what is to be compared.

A run is one change with one seed, named by the hash of its resolved settings. Settings at their
default do not enter the hash, so that a later version with one setting more gives a run that was
done before the same name.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pellucid.config import RunConfig, load_recipe
from pellucid.errors import UsageError
from pellucid.lab.metrics import NEEDED, check_metric
from pellucid.settings import from_mapping, nearest, read_toml, to_mapping

FORMAT = 1


@dataclass(frozen=True)
class Contrast:
    """A comparison that was chosen before anything ran."""

    change: str
    """The change that is judged."""
    metric: str
    """What it is judged by."""
    against: str = ""
    """What it is judged against; unset: as the change says, else the base."""
    expect: Literal["", "lower", "higher"] = ""
    """Which way it was expected to go."""
    claim: str = ""
    """The claim that this puts to the test, in words."""


@dataclass(frozen=True)
class Reference:
    """A figure that somebody else gives for a variant."""

    change: str
    """The variant."""
    metric: str
    """What was measured."""
    value: float
    """The figure."""


@dataclass(frozen=True)
class Bound:
    """A claim about every run of a variant by itself."""

    change: str
    """The variant."""
    metric: str
    """What is bounded."""
    claim: str
    """The claim in words."""
    at_least: float | None = None
    """Never below this."""
    at_most: float | None = None
    """Never above this."""

    def holds(self, value: float) -> bool:
        """Return whether a run's value keeps to it.

        >>> Bound("d_k", "train_loss", "never above 0.28", at_most=0.28).holds(0.27)
        True
        """
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Change:
    """A variant of the base."""

    about: str = ""
    """In words, for the report."""
    against: str = ""
    """What it is compared with; unset: the base."""
    seeds: int | None = None
    """Only this many of the study's seeds; unset: all."""


@dataclass(frozen=True)
class Plan:
    """The plain settings of a study file; the tables of changed settings stand beside them."""

    format: int
    """1, the format described here."""
    question: str
    """What the study asks."""
    recipe: str
    """The recipe everything starts from, or a TOML file."""
    base: str
    """What the unchanged variant is called."""
    seeds: tuple[int, ...]
    """Each draws first weights, the order of the data, and dropout."""
    metrics: tuple[str, ...]
    """What is measured of every run, the most important first."""
    minutes_per_run: float
    """The budget: what one run takes on one core, about."""
    gigabytes_per_run: float = 1.0
    """Memory that one run needs, about; it decides how many run at a time."""
    about_base: str = ""
    """The unchanged variant in words."""
    tokenizer: str = ""
    """A tokenizer.json for both sides, beside the study; unset: learnt as the recipe says."""
    frame_source: bool = False
    """Begin and end tokens stand round sources too, as in seed 003."""
    probe_steps: tuple[int, ...] = ()
    """Steps after which a look inside is taken; the last step always is."""
    primary: tuple[Contrast, ...] = ()
    """The comparisons that the study is about, stated before it is run."""
    reference_name: str = ""
    """Whose figures `reference` holds."""
    reference: tuple[Reference, ...] = ()
    """Figures that ours stand beside."""
    bounds: tuple[Bound, ...] = ()
    """Claims about single runs."""
    notes: tuple[str, ...] = ()
    """What a reader of the report should know."""


@dataclass(frozen=True)
class Trial:
    """One run: all that a process, here or elsewhere, needs to do it."""

    study: str
    change: str
    seed: int
    id: str
    config: RunConfig
    probe_steps: tuple[int, ...] = ()
    tokenizer: str = ""
    """The text of tokenizer.json, or "" for one learnt from the data."""
    frame_source: bool = False


@dataclass(frozen=True)
class Study:
    """A study as read and checked: `variants` holds the base, then the changes, by name."""

    name: str
    plan: Plan
    changes: Mapping[str, Change]
    variants: Mapping[str, RunConfig]
    tokenizer: str = ""
    source: str = field(default="", compare=False)
    """The text of the file, for the report."""

    def seeds_of(self, change: str) -> tuple[int, ...]:
        """Return the seeds that a variant runs with."""
        return self.plan.seeds[: self.changes[change].seeds]

    def trials(self) -> list[Trial]:
        """Return every run, seeds before variants: any prefix is as balanced as can be."""
        return [
            self._trial(name, seed)
            for seed in self.plan.seeds
            for name in self.variants
            if seed in self.seeds_of(name)
        ]

    def against(self, change: str) -> str:
        """Return what a change is compared with."""
        return self.changes[change].against or self.plan.base

    def contrasts(self) -> Iterator[tuple[Contrast, bool]]:
        """Yield every comparison, the primary ones first, with whether it is one of them."""
        seen = set()
        for contrast in self.plan.primary:
            full = replace(contrast, against=contrast.against or self.against(contrast.change))
            seen.add((full.change, full.against, full.metric))
            yield full, True
        for metric in self.plan.metrics:
            for change in self.variants:
                against = self.against(change)
                if change != against and (change, against, metric) not in seen:
                    yield Contrast(change, metric, against), False

    def families(self) -> dict[str, list[str]]:
        """Return the variants in groups: what is compared with, then what is compared with it.

        >>> list(load_study("seed-003").families()) == ["against sqrt_d_k"]
        True
        """
        found: dict[str, list[str]] = {}
        for name in self.variants:
            against = self.against(name)
            group = found.setdefault(f"against {against}", [against])
            if name not in group:
                group.append(name)
        return {title: names for title, names in found.items() if len(names) > 1} or found

    def _trial(self, name: str, seed: int) -> Trial:
        config = self.variants[name]
        config = replace(config, seed=seed, training=replace(config.training, seed=seed))
        framed = self.plan.frame_source
        return Trial(
            self.name,
            name,
            seed,
            run_id(config, self.tokenizer, framed),
            config,
            self.plan.probe_steps,
            self.tokenizer,
            framed,
        )


def run_id(config: RunConfig, tokenizer: str = "", frame_source: bool = False) -> str:
    """Return the name of a run: 12 hexadecimal digits of its settings' SHA-256.

    >>> run_id(RunConfig(description="a")) == run_id(RunConfig(description="b"))
    True
    >>> run_id(RunConfig(seed=1)) == run_id(RunConfig(seed=2))
    False
    """
    default = dict(_flat(to_mapping(RunConfig())))
    settings = {
        key: value
        for key, value in _flat(to_mapping(replace(config, description="")))
        if key not in default or default[key] != value
    }
    if tokenizer:
        settings["tokenizer file"] = hashlib.sha256(tokenizer.encode()).hexdigest()
    if frame_source:
        settings["frame_source"] = True
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """Return a run's settings under dotted names."""
    return dict(_flat(to_mapping(config)))


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
    return read_study(path)


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
        path.stem, plan, changes, variants, _read_tokenizer(path, plan), path.read_text("utf-8")
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


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def choose(trials: Sequence[Trial], only: Sequence[str], seeds: Sequence[int]) -> list[Trial]:
    """Return the trials of these changes and seeds; of all when a list is empty.

    Raises `UsageError` for a name or a seed that no trial has.
    """
    for what, wanted, known in (
        ("change", only, {t.change for t in trials}),
        ("seed", seeds, {t.seed for t in trials}),
    ):
        for one in wanted:
            if one not in known:
                hint = nearest(str(one), map(str, known))
                listed = ", ".join(map(str, sorted(known, key=str)))
                raise UsageError(f"no {what} {one!r} in this study{hint}; there are: {listed}")
    return [t for t in trials if (not only or t.change in only) and (not seeds or t.seed in seeds)]
