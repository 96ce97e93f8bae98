"""A study: one recipe, a few named changes of its settings, seeds, and what is to be compared.

A run is one change with one seed, named by the hash of its resolved settings. Settings at their
default do not enter the hash, so that a later version with one setting more gives a run that was
done before the same name.
"""

from __future__ import annotations

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
    typed: str = field(default="", compare=False)
    """What it is called at the command line."""

    def seeds_of(self, change: str) -> tuple[int, ...]:
        """Return the seeds that a variant runs with."""
        return self.plan.seeds[: self.changes[change].seeds]

    def pairs_of(self, contrast: Contrast) -> set[int]:
        """Return the seeds that both sides of a comparison run with."""
        against = contrast.against or self.against(contrast.change)
        return set(self.seeds_of(contrast.change)) & set(self.seeds_of(against))

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
        """Yield every comparison once, the primary ones first, with whether it is one of them."""
        seen = set()
        for contrast in self.plan.primary:
            full = replace(contrast, against=contrast.against or self.against(contrast.change))
            seen.add((frozenset((full.change, full.against)), full.metric))
            yield full, True
        for metric in self.plan.metrics:
            for change in self.variants:
                against = self.against(change)
                if change != against and (frozenset((change, against)), metric) not in seen:
                    yield Contrast(change, metric, against), False

    def families(self) -> dict[str, list[str]]:
        """Return the variants in groups: what is compared with, then what is compared with it.

        >>> from pellucid.lab.study_file import load_study
        >>> list(load_study("seed-003").families())[0]
        'against sqrt_d_k'
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
    """Return a run's settings under dotted names; inf, for which JSON has no word, as text."""
    return {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in flat(to_mapping(config)).items()
    }


def choose(trials: Sequence[Trial], only: Sequence[str], seeds: Sequence[int]) -> list[Trial]:
    """Return the trials of these changes and seeds; of all when a list is empty.

    Raises `UsageError` for a name or a seed that no trial has, and when none has both.
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
    found = [t for t in trials if (not only or t.change in only) and (not seeds or t.seed in seeds)]
    if not found:
        there = sorted({t.seed for t in trials if t.change in only})
        raise UsageError(
            f"no run is both one of {', '.join(only)} and of seed {', '.join(map(str, seeds))}; "
            f"the seeds there are: {', '.join(map(str, there))}"
        )
    return found
