"""Match the runs of a study with the lines of its results file."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pellucid.apps.lab.metrics import TOKEN, find_metric, value_of
from pellucid.apps.lab.results import Line
from pellucid.apps.lab.statistics import Comparison, compare, with_holm
from pellucid.apps.lab.study import Study, Trial
from pellucid.core.errors import UserError

DECIDING = ("data.", "tokenizer.kind", "tokenizer.normalise")
"""Beginnings of the settings that determine the data. The tokenizer's are among them: pairs may
become equal, and are then removed, by how texts are normalised."""
UNKNOWN = "lines of the results file that belong to no run of the study as it is now: {}"
"""Warning about results that belong to no run of the present study."""


@dataclass(frozen=True)
class Findings:
    """A study, and the results of its runs so far."""

    study: Study
    done: Mapping[str, Mapping[int, Line]]
    """Lines of the finished runs, by variant and seed."""
    failed: Sequence[Line]
    """Lines of the failed runs."""
    missing: int
    """Number of planned runs without a line."""
    unknown: int
    """Number of finished runs in the file that do not belong to the study as it is now."""

    @property
    def lines(self) -> list[Line]:
        """The lines of all finished runs."""
        return [line for seeds in self.done.values() for line in seeds.values()]

    @property
    def unwritten(self) -> list[str]:
        """Metrics of the study for which no finished run has a value."""
        return [
            metric
            for metric in self.study.plan.metrics
            if all(value_of(line, metric) is None for line in self.lines)
        ]

    @property
    def data_changed(self) -> bool:
        """Whether runs with the same data settings were trained on different data.

        The data of a run is identified by its digest.
        """
        known: dict[str, set[str]] = {}
        for line in self.lines:
            settings = {k: v for k, v in line["settings"].items() if k.startswith(DECIDING)}
            known.setdefault(repr(settings), set()).update({line["data"]} if "data" in line else ())
        return any(len(digests) > 1 for digests in known.values())

    @property
    def other_tokens(self) -> list[str]:
        """Variants with another tokenizer than the base's, if a loss per token is compared.

        Such losses cannot be compared: their tokens differ. Empty if no metric is per token, or if
        the study has one tokenizer for all.
        """
        plan, variants = self.study.plan, self.study.variants
        if self.study.tokenizer or all(find_metric(m).unit != TOKEN for m in plan.metrics):
            return []
        known = {name: replace(config.tokenizer, dropout=0.0) for name, config in variants.items()}
        return [name for name, tokenizer in known.items() if tokenizer != known[plan.base]]

    def values(self, change: str, metric: str) -> dict[int, float | None]:
        """Return the values of a metric for one variant, by seed.

        None where a run lacks it.
        """
        return {seed: value_of(line, metric) for seed, line in self.done.get(change, {}).items()}

    @cached_property
    def comparisons(self) -> Sequence[Comparison]:
        """All comparisons of the study with their statistics and Holm's correction."""
        found = []
        failed = {(line["change"], line["seed"]) for line in self.failed}
        for contrast, primary in self.study.contrasts():
            planned = self.study.pairs_of(contrast)
            values, against = (
                {s: v for s, v in self.values(name, contrast.metric).items() if s in planned}
                for name in (contrast.change, contrast.against)
            )
            found.append(compare(contrast, primary, values, against, planned, failed))
        return with_holm(found)


def unknown_lines(lines: Mapping[str, Line], ids: Container[str]) -> int:
    """Count the finished runs whose id is not among `ids`.

    Failed runs are not counted.
    """
    return sum(line["status"] == "done" for id, line in lines.items() if id not in ids)


def gather(study: Study, lines: Mapping[str, Line]) -> Findings:
    """Match the lines of a results file with the runs of a study.

    Raises `UserError` if no run of the study is finished.
    """
    trials: dict[str, Trial] = {trial.id: trial for trial in study.trials()}
    done: dict[str, dict[int, Line]] = {name: {} for name in study.variants}
    failed = []
    known = [(trials[id], line) for id, line in lines.items() if id in trials]
    for trial, line in known:
        if line["status"] == "done":
            done[trial.change][trial.seed] = line
        else:
            failed.append({**line, "change": trial.change, "seed": trial.seed})
    unknown = unknown_lines(lines, trials)
    if not any(done.values()):
        also = f"; {len(failed)} failed, the first: {failed[0]['error']}" if failed else ""
        also += f"; {UNKNOWN.format(unknown)}" if unknown else ""
        raise UserError(
            f"no run of {study.name} is done yet{also}. Run pellucid lab run first, with the same "
            "`folder` and `results`, if any"
        )
    return Findings(study, done, failed, len(trials) - len(known), unknown)
