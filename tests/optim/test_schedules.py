from __future__ import annotations

import math
from itertools import pairwise

import pytest

from pellucid.core.errors import UsageError
from pellucid.optim.config import ScheduleConfig
from pellucid.optim.schedules import (
    SCHEDULES,
    constant,
    cosine,
    inverse_sqrt,
    linear,
    paper,
)


def test_the_papers_equation() -> None:
    for step in (1, 17, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert paper(step, d_model=512, warmup=4000) == pytest.approx(expected, rel=1e-15)


def test_inverse_sqrt_is_the_papers_curve_by_its_peak() -> None:
    peak = paper(4000, d_model=512, warmup=4000)
    for step in (1, 100, 4000, 9999):
        ours = inverse_sqrt(step, lr=peak, warmup=4000)
        assert ours == pytest.approx(paper(step, d_model=512, warmup=4000), rel=1e-12)


@pytest.mark.parametrize("decay", [linear, cosine])
def test_decays_rise_peak_and_reach_their_end_after_the_last_step(decay) -> None:
    rates = [decay(s, lr=2.0, total=17, warmup=5, end=0.1) for s in range(1, 19)]
    assert rates[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert all(a > b for a, b in pairwise(rates[4:]))
    assert rates[16] > 0.2
    assert rates[17] == pytest.approx(0.2)
    assert decay(400, lr=2.0, total=17, warmup=5, end=0.1) == pytest.approx(0.2)


def test_half_way_down() -> None:
    assert linear(12, lr=1.0, total=17, warmup=6) == pytest.approx(0.5)
    assert cosine(12, lr=1.0, total=17, warmup=6) == pytest.approx(0.5)
    third = (1 + math.cos(math.pi / 3)) / 2
    assert cosine(10, lr=1.0, total=17, warmup=6) == pytest.approx(third)


def test_a_single_step_gets_the_full_rate() -> None:
    assert linear(1, lr=1.0, total=1) == cosine(1, lr=1.0, total=1) == 1.0


def test_warmup_longer_than_training_only_rises() -> None:
    assert linear(3, lr=1.0, total=5, warmup=10) == pytest.approx(0.3)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_config_is_its_function(name: str) -> None:
    config = ScheduleConfig(name, lr=0.25, warmup=7, end=0.5)
    expected = {
        "constant": constant(11, lr=0.25, warmup=7),
        "inverse_sqrt": inverse_sqrt(11, lr=0.25, warmup=7),
        "paper": paper(11, d_model=64, warmup=7),
        "linear": linear(11, lr=0.25, total=23, warmup=7, end=0.5),
        "cosine": cosine(11, lr=0.25, total=23, warmup=7, end=0.5),
    }
    assert config.at(11, total=23, d_model=64) == expected[name]
    assert len(set(expected.values())) == len(SCHEDULES)


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({"name": "step"}, "constant, inverse_sqrt"),
        ({"lr": 0.0}, "lr"),
        ({"lr": math.inf}, "lr"),
        ({"lr": math.nan}, "lr"),
        ({"warmup": -1}, "warmup"),
        ({"name": "paper"}, "warmup"),
        ({"end": 1.5}, "end"),
    ],
)
def test_settings_out_of_range(wrong: dict, reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        ScheduleConfig(**wrong)
