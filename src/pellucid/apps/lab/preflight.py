"""Preflight checks: what runs need is checked once, before the first run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pellucid.apps.lab.results import read_results
from pellucid.apps.lab.study import Study, Trial
from pellucid.apps.lab.study_checks import check_held_out
from pellucid.apps.lab.trial import data_digest, other_data, read_pairs
from pellucid.core.errors import UserError
from pellucid.tasks.bleu import check_installed
from pellucid.training.config import DataConfig, RunConfig


class _Data(NamedTuple):
    """What is kept of pairs once they are read."""

    parts: tuple[str, ...]
    """Those of "valid" and "test" that have pairs."""
    digest: str


def check_ready(study: Study, trials: Sequence[Trial], results: Path) -> None:
    """Read all data of these trials, on the machine that will run them.

    results: the results file, with whose runs they will be compared.

    Raises `UserError` for data that is missing or damaged, a metric of held-out pairs that the data
    does not have, data that changed after a run was done, and a package that is not installed.
    """
    read: dict[tuple[DataConfig, object], _Data] = {}
    for change in dict.fromkeys(trial.change for trial in trials):
        config = study.variants[change]
        if config.evaluation.metric == "bleu":
            check_installed()
        if _key(config) not in read:
            pairs = read_pairs(config)
            parts = tuple(part for part in ("valid", "test") if getattr(pairs, part))
            read[_key(config)] = _Data(parts, data_digest(pairs))
        check_held_out(study.plan.metrics, change, config.data, read[_key(config)].parts)
    _check_same_data(study, read, read_results(results), results)


def _check_same_data(
    study: Study,
    read: Mapping[tuple[DataConfig, object], _Data],
    lines: Mapping[str, Mapping[str, str]],
    results: Path,
) -> None:
    """Refuse data other than that of the finished runs, as far as their lines say."""
    for trial in study.trials():
        before = lines.get(trial.id, {}).get("data")
        now = read.get(_key(trial.config))
        if before and now and before != now.digest:
            raise UserError(
                f"{results}: {trial.change} with seed {trial.seed} was trained on "
                f"{other_data(before, now.digest)}; put the data back, use another results file "
                "and folder, or delete this file and the runs folder and do all runs again"
            )


def _key(config: RunConfig) -> tuple[DataConfig, object]:
    """Return the settings that decide which pairs there are, and in which part."""
    return config.data, config.tokenizer.normalise
