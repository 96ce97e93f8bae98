"""The range test: where the loss falls, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.apps.lab.small import RECIPE, write_study

from pellucid.apps.cli.main import main
from pellucid.apps.lab.learning_rate import range_test
from pellucid.core.errors import UsageError
from pellucid.training.config import StartConfig, load_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    write_study(tmp_path)
    return tmp_path / "recipe.toml"


def test_the_loss_falls_and_then_rises(recipe: Path) -> None:
    found = range_test(load_recipe(str(recipe)), low=1e-5, high=10.0, steps=60)
    assert found.rates[0] == 1e-5
    assert found.rates == sorted(found.rates)
    assert 1e-3 < found.lowest < 1.0
    assert min(found.losses) < 0.95 * found.losses[0]
    assert found.losses[-1] > min(found.losses)


@pytest.mark.parametrize("given", [(0.0, 1.0, 50), (1e-3, 1e-4, 50), (1e-6, 1.0, 5)])
def test_wrong_rates_are_refused(given: tuple[float, float, int], recipe: Path) -> None:
    with pytest.raises(UsageError, match="expected 0 < low < high and at least 10 steps"):
        range_test(load_recipe(str(recipe)), *given)


def test_a_model_to_begin_with_is_refused(recipe: Path) -> None:
    """It began with a new model, and said nothing."""
    config = replace(load_recipe(str(recipe)), start=StartConfig(recipe.parent))
    with pytest.raises(UsageError, match="begins with a new model; leave out"):
        range_test(config)


def test_the_command_says_which_setting_to_use(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "lr", str(recipe), "--steps", "12", "--model.d-model", "6"]) == 0
    shown = capsys.readouterr().out
    assert "lowest loss at" in shown
    assert "--training.schedule.lr" in shown
    assert not (recipe.parent / "runs").exists()
    assert main(["lab", "lr"]) == 2
    assert "which recipe?" in capsys.readouterr().err


def test_a_model_of_one_vocabulary_is_tested(tmp_path: Path) -> None:
    texts = "".join(f"{number} and {number + 1}\n" for number in range(40))
    (tmp_path / "texts.txt").write_text(texts, encoding="utf-8")
    text = RECIPE.format(folder=tmp_path, epochs=1).replace("pairs.tsv", "texts.txt")
    text = text.replace("encoder_layers = 1\ndecoder_layers = 1\n", "num_hidden_layers = 1\n")
    text = text.replace("[model]\n", '[model]\nmodel_type = "pellucid-causal-lm"\n')
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
    found = range_test(load_recipe(str(tmp_path / "recipe.toml")), steps=10)
    assert len(found.rates) == 10
