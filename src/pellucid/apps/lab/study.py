"""A study: one recipe, named changes of its settings, seeds, and comparisons.

A run is one variant with one seed. Its name is the hash of its resolved settings and of the study's
tokenizer. Settings with their default value do not enter the hash, so that a setting added later
keeps the names of earlier runs.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pellucid.core.errors import UsageError
from pellucid.core.settings import check_known, flat, to_mapping
from pellucid.training.config import RunConfig

FORMAT = 1


@dataclass(frozen=True)
class Contrast:
    """A comparison of two variants by one metric."""

    change: str
    metric: str
    against: str = ""
    """The other variant; unset: the `against` of the change, else the base."""
    expect: Literal["", "lower", "higher"] = ""
    """The expected direction of the metric."""
    claim: str = ""
    """The claim that the comparison tests."""

    @property
    def asked(self) -> tuple[frozenset[str], str]:
        """Key of a comparison: equal for the same two variants, in any order, and metric."""
        return frozenset((self.change, self.against)), self.metric


@dataclass(frozen=True)
class Reference:
    """A published value of a metric for a variant."""

    change: str
    metric: str
    value: float


@dataclass(frozen=True)
class Bound:
    """A claim about the metric of every single run of a variant."""

    change: str
    metric: str
    claim: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether the value of one run satisfies the claim.

        >>> Bound("d_k", "train_loss", "never above 0.28", at_most=0.28).holds(0.27)
        True
        """
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Change:
    """A variant of the base: its description, and how it is compared."""

    about: str = ""
    """A description for the report."""
    against: str = ""
    """The variant to compare it with; unset: the base."""
    seeds: int | None = None
    """Use only this many seeds of the study, the first ones; unset: all."""


@dataclass(frozen=True)
class Plan:
    """The settings at the top of a study file, without its tables of changes."""

    format: int
    """Version of the file format: 1."""
    question: str
    recipe: str
    """A recipe's name, or a TOML file next to the study."""
    seeds: tuple[int, ...]
    """Random seeds; each one determines the initial weights, the order of the data, and dropout."""
    metrics: tuple[str, ...]
    """Metrics to compare (`pellucid.apps.lab.metrics`), the most important first."""
    minutes_per_run: float
    """Estimated time of one run on one core, in minutes."""
    base: str = ""
    """Name of the unchanged variant; unset: recipe, in a study of files the first."""
    gigabytes_per_run: float = 1.0
    """Memory of one run; it limits how many run at a time."""
    measures: tuple[str, ...] = ("attention", "memory", "embeddings", "gradients", "dead_units")
    """Measures to record inside the model and to show; unset: all of studies/measures.py."""
    imports: tuple[str, ...] = ()
    """Python files with further measures: next to the study, or shipped (exponents.py)."""
    about_base: str = ""
    """Description of the unchanged variant."""
    tokenizer: str = ""
    """A tokenizer.json next to the study, for both sides; unset: trained as the recipe says."""
    frame_source: bool = False
    """Put begin and end tokens around sources too, as article 003 does; needs `tokenizer`."""
    probe_steps: tuple[int, ...] = ()
    """Steps after which the measures are recorded, in addition to the last one."""
    primary: tuple[Contrast, ...] = ()
    """The main comparisons, stated before the study is run."""
    reference_name: str = ""
    """Source of the figures in `reference`."""
    reference: tuple[Reference, ...] = ()
    bounds: tuple[Bound, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the readers of the report."""


@dataclass(frozen=True)
class Trial:
    """One run of a study, with everything that a process needs to do it."""

    study: str
    change: str
    seed: int
    id: str
    config: RunConfig
    plan: Plan
    tokenizer: str = ""
    """Text of a tokenizer.json, or "" to train a tokenizer on the data."""


@dataclass(frozen=True)
class Study:
    """A checked study.

    `variants` has the settings of the base first, then of the changes.
    """

    name: str
    plan: Plan
    changes: Mapping[str, Change]
    variants: Mapping[str, RunConfig]
    points: frozenset[str] = frozenset()
    """Names of the variants that come from a grid, from random points or from files."""
    tokenizer: str = ""
    source: str = field(default="", compare=False)
    """Text of the study file, for the report."""
    typed: str = field(default="", compare=False)
    """The study as named on the command line."""

    def seeds_of(self, change: str) -> tuple[int, ...]:
        """Return the seeds that a variant runs with."""
        return self.plan.seeds[: self.changes[change].seeds]

    def pairs_of(self, contrast: Contrast) -> set[int]:
        """Return the seeds that both variants of a comparison run with."""
        contrast = self.complete(contrast)
        return set(self.seeds_of(contrast.change)) & set(self.seeds_of(contrast.against))

    def trials(self) -> list[Trial]:
        """Return all runs: all variants with the first seed, then with the next one.

        In this order a study that is stopped early has about as many runs of each variant.
        """
        plan, found = self.plan, []
        for seed in plan.seeds:
            for name, config in self.variants.items():
                if seed in self.seeds_of(name):
                    seeded = replace(
                        config, seed=seed, training=replace(config.training, seed=seed)
                    )
                    id = run_id(seeded, self.tokenizer, plan.frame_source)
                    found.append(Trial(self.name, name, seed, id, seeded, plan, self.tokenizer))
        return found

    def against(self, change: str) -> str:
        """Return the variant that a change is compared with by default."""
        return self.changes[change].against or self.plan.base

    def complete(self, contrast: Contrast) -> Contrast:
        """Return the comparison with its default filled in: the variant to compare with."""
        return replace(contrast, against=contrast.against or self.against(contrast.change))

    def contrasts(self) -> Iterator[tuple[Contrast, bool]]:
        """Yield (comparison, whether it is primary): each once, the primary ones first."""
        primary = [self.complete(contrast) for contrast in self.plan.primary]
        yield from ((contrast, True) for contrast in primary)
        seen = {contrast.asked for contrast in primary}
        for metric in self.plan.metrics:
            for change in self.variants:
                contrast = Contrast(change, metric, self.against(change))
                if change != contrast.against and contrast.asked not in seen:
                    yield contrast, False

    def families(self) -> dict[str, list[str]]:
        """Group the variants by the variant that they are compared with, which comes first.

        Groups of one variant are left out, unless all are.

        >>> from pellucid.apps.lab.study_file import load_study
        >>> list(load_study("article-003").families())
        ['sqrt_d_k']
        """
        found: dict[str, list[str]] = {}
        for name in self.variants:
            against = self.against(name)
            group = found.setdefault(against, [against])
            if name not in group:
                group.append(name)
        return {base: names for base, names in found.items() if len(names) > 1} or found


def run_id(config: RunConfig, tokenizer: str = "", frame_source: bool = False) -> str:
    """Return the name of a run: 12 hexadecimal digits of the SHA-256 of its settings.

    The description and settings with their default value are left out. `tokenizer`, the text of a
    tokenizer.json, and `frame_source` count as settings if given.

    >>> run_id(RunConfig(description="a")) == run_id(RunConfig(description="b"))
    True
    >>> run_id(RunConfig(seed=1)) == run_id(RunConfig(seed=2))
    False
    """
    default = flat(to_mapping(RunConfig()))
    settings = {
        key: value
        for key, value in flat(to_mapping(replace(config, description=""))).items()
        if key not in default or default[key] != value
    }
    if tokenizer:
        settings["tokenizer file"] = hashlib.sha256(tokenizer.encode()).hexdigest()
    if frame_source:
        settings["frame_source"] = True
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def flat_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run by dotted name.

    Infinity becomes text, because JSON has no infinity.
    """
    return {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in flat(to_mapping(config)).items()
    }


def select_trials(
    trials: Sequence[Trial], only: Sequence[str], seeds: Sequence[int]
) -> list[Trial]:
    """Select the trials of some variants and seeds; an empty list selects all.

    Raises `UsageError` for a variant or a seed that no trial has, if no trial has both, and if
    there are no trials.
    """
    for change in only:
        check_known("change", change, sorted({t.change for t in trials}))
    for seed in seeds:
        check_known("seed", seed, sorted({t.seed for t in trials}))
    if not trials:
        raise UsageError(
            "this study trains on files of the current folder, or of folders in it, and none is "
            "there; go to where they are, LANG_train.tsv and so on"
        )
    found = [t for t in trials if (not only or t.change in only) and (not seeds or t.seed in seeds)]
    if not found:
        there = sorted({t.seed for t in trials if t.change in only})
        raise UsageError(
            f"no run of {', '.join(only)} has seed {', '.join(map(str, seeds))}; they have seeds "
            f"{', '.join(map(str, there))}"
        )
    return found
