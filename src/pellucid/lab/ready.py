"""What runs need is looked for before the first begins: one fault, and not one for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pellucid.core.errors import UserError
from pellucid.evaluation.bleu import check_installed
from pellucid.lab.results import read_results
from pellucid.lab.study import Study, Trial
from pellucid.lab.study_checks import check_sides
from pellucid.lab.trial import data_digest, other_data, read_pairs
from pellucid.training.config import DataConfig, RunConfig

Asked = tuple[DataConfig, tuple[str, ...]]
"""Settings that say which pairs there are, and on which side each stands."""


class _Data(NamedTuple):
    """What is kept of pairs once they are read."""

    valid: bool
    """Whether there are validation pairs."""
    test: bool
    """Whether there are test pairs."""
    digest: str


def check_ready(study: Study, trials: Sequence[Trial], results: Path) -> None:
    """Read all that these trials learn from, on the machine that will do them.

    results: the results file, with whose runs they will be compared.

    Raises `UserError` for data that is missing or damaged, a metric of pairs that the data does not
    put aside, data that changed after a run was done, and a package that is not installed.
    """
    read: dict[Asked, _Data] = {}
    for change in dict.fromkeys(trial.change for trial in trials):
        config = study.variants[change]
        if config.evaluation.metric == "bleu":
            check_installed()
        if _asked(config) not in read:
            read[_asked(config)] = _read(config)
        data = read[_asked(config)]
        check_sides(study.plan.metrics, change, config.data, data.valid, data.test)
    _check_same(study, read, results)


def _check_same(study: Study, read: Mapping[Asked, _Data], results: Path) -> None:
    """Refuse data other than what runs that are done learnt from, as far as their lines say."""
    lines = read_results(results)
    for trial in study.trials():
        before = lines.get(trial.id, {}).get("data")
        now = read.get(_asked(trial.config))
        if before and now and before != now.digest:
            raise UserError(
                f"{results}: {trial.change} with seed {trial.seed} learnt from "
                f"{other_data(before, now.digest)}; put the data back, name another results "
                "file and folder, or delete this file and the runs folder and do all of them again"
            )


def _asked(config: RunConfig) -> Asked:
    return config.data, config.tokenizer.normalise


def _read(config: RunConfig) -> _Data:
    pairs = read_pairs(config)
    return _Data(bool(pairs.valid), bool(pairs.test), data_digest(pairs))
