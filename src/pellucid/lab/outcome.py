"""A study and what there is of its results, matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pellucid.core.errors import UserError
from pellucid.lab.metrics import value_of
from pellucid.lab.results import Line
from pellucid.lab.statistics import Comparison, compare, with_holm
from pellucid.lab.study import Study, Trial

STRANGE = "further lines of the results file belong to no run of the study as it is now"


@dataclass(frozen=True)
class Outcome:
    """A study with what there is of its results."""

    study: Study
    done: Mapping[str, Mapping[int, Line]]
    """Lines of the runs that were done, by variant and seed."""
    failed: Sequence[Line]
    missing: int
    """Planned runs that are not there."""
    strangers: int
    """Lines of the file that are no run of this study as it is now."""

    @property
    def unwritten(self) -> list[str]:
        """The study's metrics that no run has."""
        return [
            metric
            for metric in self.study.plan.metrics
            if all(value_of(line, metric) is None for line in self.lines)
        ]

    @property
    def lines(self) -> list[Line]:
        """Every line of a run that was done."""
        return [line for seeds in self.done.values() for line in seeds.values()]

    def values(self, change: str, metric: str) -> dict[int, float | None]:
        """Return a metric of a variant by seed."""
        return {seed: value_of(line, metric) for seed, line in self.done[change].items()}

    @cached_property
    def comparisons(self) -> Sequence[Comparison]:
        """Every contrast judged, corrected for how many there are."""
        found = []
        failed = {(line["change"], line["seed"]) for line in self.failed}
        for contrast, primary in self.study.contrasts():
            sides = (contrast.change, contrast.against)
            planned = self.study.pairs_of(contrast)
            values = [
                {s: v for s, v in self.values(side, contrast.metric).items() if s in planned}
                for side in sides
            ]
            found.append(compare(contrast, primary, values[0], values[1], planned, failed))
        return with_holm(found)


def gather(study: Study, lines: Mapping[str, Line]) -> Outcome:
    """Match lines of a results file with the runs of a study.

    Raises `UserError` when no run is done yet.
    """
    trials: dict[str, Trial] = {trial.id: trial for trial in study.trials()}
    done: dict[str, dict[int, Line]] = {name: {} for name in study.variants}
    failed = []
    for id, line in lines.items():
        if id not in trials:
            continue
        if line["status"] == "done":
            done[trials[id].change][trials[id].seed] = line
        else:
            failed.append({**line, "change": trials[id].change, "seed": trials[id].seed})
    known = trials.keys() & lines.keys()
    strangers = len(lines) - len(known)
    if not any(done.values()):
        said = f"; {len(failed)} failed, the first: {failed[0]['error']}" if failed else ""
        said += f"; {strangers} {STRANGE}" if strangers else ""
        raise UserError(
            f"no run of {study.name} is done yet{said}. Do some with pellucid lab run and the same "
            "--folder and --results, if any"
        )
    return Outcome(study, done, failed, len(trials) - len(known), strangers)
