from __future__ import annotations

import math
from pathlib import Path

import pytest
import tomli_w

from pellucid.core.errors import UsageError
from pellucid.core.settings import from_mapping, read_toml, to_mapping
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


@pytest.mark.parametrize(
    ("monitor", "higher"),
    [("loss", False), ("per", False), ("wer", False), ("bleu", True), ("bleu_lower", True),
     ("chrf", True), ("of my own", False)],
)  # fmt: skip
def test_which_way_is_better_follows_from_a_known_name(monitor: str, higher: bool) -> None:
    config = TrainConfig(steps=1, monitor=monitor)
    config.check([monitor])
    assert config.higher_wins is higher


def test_another_score_says_itself_which_way_is_better() -> None:
    config = TrainConfig(steps=1, monitor="of my own", higher_is_better=True)
    config.check(["of my own"])
    assert config.higher_wins


@pytest.mark.parametrize("monitor", ["loss", "per", "wer"])
def test_a_known_score_is_not_turned_round(monitor: str) -> None:
    config = TrainConfig(steps=1, monitor=monitor, higher_is_better=True)
    with pytest.raises(UsageError, match=f"higher_is_better.*'{monitor}'.*lower.*leave it out"):
        config.check([monitor])


def test_settings_survive_toml(tmp_path: Path) -> None:
    config = TrainConfig(
        minutes=1.5,
        patience=3,
        optimizer=OptimizerConfig("adamw", betas=(0.9, 0.98), clip=math.inf),
        schedule=ScheduleConfig("paper", warmup=4000),
    )
    path = tmp_path / "config.toml"
    path.write_text(tomli_w.dumps(to_mapping(config)))
    assert from_mapping(TrainConfig, read_toml(path), str(path)) == config
    assert to_mapping(from_mapping(TrainConfig, read_toml(path), "x")) == to_mapping(config)


def test_enough_checkpoints_are_kept_to_average() -> None:
    assert TrainConfig(keep=2, average=5).checkpoints_kept == 2
    assert TrainConfig(keep=2, average=5, use="average").checkpoints_kept == 5
