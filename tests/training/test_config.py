from __future__ import annotations

import math
from pathlib import Path

import pytest

from pellucid.errors import UsageError
from pellucid.settings import from_mapping, read_toml, to_mapping, write_toml
from pellucid.training import OptimizerConfig, ScheduleConfig, TrainConfig


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"epochs": -1},
        {"minutes": 0.0},
        {"minutes": math.nan},
        {"accumulate": 0},
        {"log_every": 0},
        {"validate_every": 0},
        {"checkpoint_every": 0},
        {"patience": 0},
        {"keep": 0},
        {"average": 0},
        {"label_smoothing": 1.0},
        {"label_smoothing": -0.1},
        {"loss_normalisation": "tokens"},
        {"validate_unit": "hours"},
        {"use": "worst"},
    ],
)
def test_settings_out_of_range_are_named(wrong: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        TrainConfig(**wrong)


def test_settings_survive_toml(tmp_path: Path) -> None:
    config = TrainConfig(
        minutes=1.5,
        patience=3,
        optimizer=OptimizerConfig("adamw", betas=(0.9, 0.98), clip=math.inf),
        schedule=ScheduleConfig("paper", warmup=4000),
    )
    path = tmp_path / "config.toml"
    write_toml(config, path)
    assert from_mapping(TrainConfig, read_toml(path), str(path)) == config
    assert to_mapping(from_mapping(TrainConfig, read_toml(path), "x")) == to_mapping(config)


def test_enough_checkpoints_are_kept_to_average() -> None:
    assert TrainConfig(keep=2, average=5).checkpoints_kept == 2
    assert TrainConfig(keep=2, average=5, use="average").checkpoints_kept == 5
