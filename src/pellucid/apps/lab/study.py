"""A study: one recipe, a few named changes of its settings, random seeds, and what is compared.

A run is one variant with one seed. It is named by the hash of its resolved settings; settings at
their default do not enter the hash, so a setting added later keeps the names of earlier runs.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pellucid.core.errors import UsageError
from pellucid.core.settings import flat, nearest, to_mapping
from pellucid.training.config import RunConfig

FORMAT = 1


@dataclass(frozen=True)
class Contrast:
    """A comparison of two variants by one metric."""

    change: str
    metric: str
    against: str = ""
    """Unset: the variant's own `against`, else the base."""
    expect: Literal["", "lower", "higher"] = ""
    """The direction expected."""
    claim: str = ""
    """The claim that this tests."""

    @property
    def asked(self) -> tuple[frozenset[str], str]:
        """A key that two contrasts share if they compare the same, in either direction."""
        return frozenset((self.change, self.against)), self.metric


@dataclass(frozen=True)
class Reference:
    """A published figure for a variant."""

    change: str
    metric: str
    value: float


@dataclass(frozen=True)
class Bound:
    """A claim about every single run of a variant."""

    change: str
    metric: str
    claim: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, value: float) -> bool:
        """Return whether one run's value satisfies the claim.

        >>> Bound("d_k", "train_loss", "never above 0.28", at_most=0.28).holds(0.27)
        True
        """
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Change:
    """A variant of the base."""

    about: str = ""
    """A description for the report."""
    against: str = ""
    """The variant it is compared with; unset: the base."""
    seeds: int | None = None
    """Use only this many of the seeds of the study, the first ones; unset: all."""


@dataclass(frozen=True)
class Plan:
    """The scalar settings of a study file, without its tables of changed settings."""

    format: int
    """1, the format described here."""
    question: str
    recipe: str
    """A recipe by name, or a TOML file next to the study."""
    seeds: tuple[int, ...]
    """Each seeds the initial weights, the order of the data, and dropout."""
    metrics: tuple[str, ...]
    """The metrics to compare (`pellucid.apps.lab.metrics`), the most important first."""
    minutes_per_run: float
    """The budget: about how long one run takes on one core."""
    base: str = ""
    """The name of the unchanged variant; none where the variants are files."""
    gigabytes_per_run: float = 1.0
    """Memory that one run needs; it limits how many run at a time."""
    measures: tuple[str, ...] = ("attention", "memory", "embeddings", "gradients", "dead_units")
    """Measures to record inside the model and draw; unset: those of studies/measures.py."""
    imports: tuple[str, ...] = ()
    """Python files with measures of the study's own: next to it, or shipped (exponents.py)."""
    about_base: str = ""
    """A description of the unchanged variant."""
    tokenizer: str = ""
    """A tokenizer.json for both sides, next to the study; unset: trained as the recipe says."""
    frame_source: bool = False
    """Put begin and end tokens around sources too, as article 003 does."""
    probe_steps: tuple[int, ...] = ()
    """Steps after which the measures are recorded, besides the last."""
    primary: tuple[Contrast, ...] = ()
    """The comparisons that the study is about, stated before it is run."""
    reference_name: str = ""
    """The source of the figures in `reference`."""
    reference: tuple[Reference, ...] = ()
    bounds: tuple[Bound, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the reader of the report."""


@dataclass(frozen=True)
class Trial:
    """One run: all that a process needs to do it."""

    study: str
    change: str
    seed: int
    id: str
    config: RunConfig
    plan: Plan
    tokenizer: str = ""
    """The text of tokenizer.json, or "" to train one on the data."""


@dataclass(frozen=True)
class Study:
    """A checked study: `variants` holds the settings of the base, then of the changes, by name."""

    name: str
    plan: Plan
    changes: Mapping[str, Change]
    variants: Mapping[str, RunConfig]
    points: frozenset[str] = frozenset()
    """Variants of a grid, drawn at random, or of files."""
    tokenizer: str = ""
    source: str = field(default="", compare=False)
    """The text of the file, for the report."""
    typed: str = field(default="", compare=False)
    """How the study is named on the command line."""

    def seeds_of(self, change: str) -> tuple[int, ...]:
        """Return the seeds that a variant runs with."""
        return self.plan.seeds[: self.changes[change].seeds]

    def pairs_of(self, contrast: Contrast) -> set[int]:
        """Return the seeds that both variants of a comparison run with."""
        contrast = self.complete(contrast)
        return set(self.seeds_of(contrast.change)) & set(self.seeds_of(contrast.against))

    def trials(self) -> list[Trial]:
        """Return every run, all variants with one seed before the next seed: prefixes balance."""
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
        """Return the variant that a change is compared with."""
        return self.changes[change].against or self.plan.base

    def complete(self, contrast: Contrast) -> Contrast:
        """Return a contrast whose `against` is set: by default the variant's base."""
        return replace(contrast, against=contrast.against or self.against(contrast.change))

    def contrasts(self) -> Iterator[tuple[Contrast, bool]]:
        """Yield every comparison once, the primary ones first, with whether it is primary."""
        primary = [self.complete(contrast) for contrast in self.plan.primary]
        yield from ((contrast, True) for contrast in primary)
        seen = {contrast.asked for contrast in primary}
        for metric in self.plan.metrics:
            for change in self.variants:
                contrast = Contrast(change, metric, self.against(change))
                if change != contrast.against and contrast.asked not in seen:
                    yield contrast, False

    def families(self) -> dict[str, list[str]]:
        """Return the variants grouped by what they are compared with, which comes first.

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
    """Return the name of a run: 12 hexadecimal digits of its settings' SHA-256.

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
    """Return a run's settings under dotted names; inf, which JSON cannot hold, as text."""
    return {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in flat(to_mapping(config)).items()
    }


def select_trials(
    trials: Sequence[Trial], only: Sequence[str], seeds: Sequence[int]
) -> list[Trial]:
    """Return the trials of these changes and seeds; an empty list selects all.

    Raises `UsageError` for a change or a seed that no trial has, and when none has both.
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
