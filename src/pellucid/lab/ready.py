"""What runs need is looked for before the first begins: one fault, and not one for each run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.bleu import check_installed
from pellucid.config import DataConfig
from pellucid.errors import UserError
from pellucid.experiment import read_data
from pellucid.lab.study import Study, Trial
from pellucid.lab.study_checks import check_sides


def check_ready(study: Study, trials: Sequence[Trial]) -> None:
    """Read all that these trials learn from, on the machine that will do them.

    Raises `UserError` for data that is missing or damaged, a metric of pairs that the data does not
    put aside, and a package that is not installed.
    """
    sides: dict[DataConfig, tuple[bool, bool]] = {}
    for change in dict.fromkeys(trial.change for trial in trials):
        config = study.variants[change]
        if config.evaluation.metric == "bleu":
            check_installed()
        if config.data not in sides:
            sides[config.data] = _read(config.data)
        check_sides(study.plan.metrics, change, *sides[config.data])


def _read(data: DataConfig) -> tuple[bool, bool]:
    """Return whether there are validation pairs, and test pairs."""
    for file in (*data.train, *data.valid, *data.test):
        if not file.exists():
            where = f" in {Path.cwd()}, from where a recipe's data files are looked for"
            raise UserError(f"{file}: there is no such file{'' if file.is_absolute() else where}")
    pairs = read_data(data)
    return bool(pairs.valid), bool(pairs.test)
