"""A step's operations, the rates they are held against, and where its time goes."""

import re
from pathlib import Path

import numpy as np
import pytest

from pellucid.apps.cli.benchmark import step as bench


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"N": 3, "V": 53, "E": 24, "H": 2, "F": 31, "LAYERS": 1}.items():
        monkeypatch.setattr(bench, name, size)


def config() -> bench.Seq2SeqConfig:
    return bench.article_config(53, 53, layers=1)


@pytest.mark.usefixtures("tiny")
def test_shares_are_parts_of_one_whole() -> None:
    step = bench.pellucid_step(*bench.random_ids(7, 53), config())
    step()
    shares = bench.shares(step)
    assert set(shares) == {*bench.KINDS.values(), "elementwise", "Python"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(0 < share < 1 for share in shares.values())


def test_no_kernel_that_multiplies_counts_as_elementwise() -> None:
    files = Path(bench.__file__).parents[3].glob("kernels/*.py")
    multiply = {
        file.stem for file in files
        if re.search(r"import .*\b(multiply_task|multiply_rows|product)\b", file.read_text("utf-8"))
        or "multiply_task," in file.read_text("utf-8")
    }  # fmt: skip
    assert {"linear", "flash", "linear_cross_entropy"} <= multiply
    assert multiply <= set(bench.KINDS)


@pytest.mark.usefixtures("tiny")
def test_random_ids_hold_no_padding_and_one_target_token_more() -> None:
    source, target = bench.random_ids(7, 53)
    assert (source.shape, target.shape) == ((3, 7), (3, 8))
    assert min(source.min(), target.min()) > 2
    assert max(source.max(), target.max()) < 53


@pytest.mark.usefixtures("tiny")
def test_operations_of_a_step_are_those_of_its_products() -> None:
    rows, e, f = 3 * 7, 24, 31
    encoder = 4 * e * e + 2 * e * f
    decoder = 8 * e * e + 2 * e * f
    scores = 3 * 7 * 2 * e  # q·k and the weighted sum, in the three attentions
    assert bench.flops(3, 7) == 3 * 2 * rows * (encoder + decoder + scores + e * 53)


@pytest.mark.usefixtures("tiny")
def test_the_yardsticks_are_rates() -> None:
    assert bench.own_rate() > 0
    assert bench.sgemm_rate() > 0


def test_calls_take_turns() -> None:
    heard: list[str] = []
    seconds = bench.in_turn([lambda: heard.append("a"), lambda: heard.append("b")], 3)
    assert heard == ["a", "b"] * 3
    assert seconds.shape == (2, 3)
    assert np.all(seconds >= 0)
