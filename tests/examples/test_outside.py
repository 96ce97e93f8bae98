"""A package of someone else's: installed by pip, its parts are used in recipes and in the lab."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OUTSIDE = Path(__file__).parents[2] / "examples" / "outside"
STUDY = """
format = 1
question = "Which optimizer?"
recipe = "digits.toml"
base = "adam"
seeds = [0]
metrics = ["off_by", "best_valid_loss"]
measures = []
minutes_per_run = 0.1

[settings.training]
epochs = 1

[changes.sgd]
set.training.optimizer.name = "sgd"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recipes, and the package installed in `site`."""
    pytest.importorskip("pip")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("outside")
    source = shutil.copytree(OUTSIDE, folder / "source")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    install += ["--no-build-isolation", "--target", str(folder / "site"), str(source)]
    subprocess.run(install, check=True)
    for recipe in source.glob("*.toml"):
        shutil.copy(recipe, folder)
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    return folder


def pellucid(place: Path, *arguments: str, installed: bool = True) -> str:
    paths = [str(place / "site")] * installed + [os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "pellucid", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_regression_with_its_corpus_and_optimizer_is_trained_and_loaded(place: Path) -> None:
    said = pellucid(place, "train", "value.toml", "--training.epochs", "20")
    assert "RMSE" in said
    value = float(pellucid(place, "generate", "runs/value", "three hundred forty two"))
    assert 2.5 < value < 4.5
    file = str(OUTSIDE / "pellucid_numbers.py")
    again = pellucid(
        place, "generate", "runs/value", "three hundred forty two", "--import", file,
        installed=False,
    )  # fmt: skip
    assert float(again) == value
    scores = pellucid(place, "evaluate", "runs/value")
    assert "R²" in scores


def test_a_metric_is_monitored_and_an_optimizer_compared_in_the_lab(place: Path) -> None:
    pytest.importorskip("psutil")
    said = pellucid(place, "lab", "run", "study.toml")
    assert "2/2 done" in said
    assert "off_by" in said
    assert "distance" in pellucid(place, "train", "digits.toml", "--help")


BACKWARD = """
import numpy as np
from pellucid.core.batch import Batch, Packed
from pellucid_numbers import Regressor, RegressorConfig

config = RegressorConfig(
    vocab_size=9, d_model=8, ffn_dim=11, num_attention_heads=2, num_hidden_layers=1
)
model = Regressor(config, dtype=np.float64).eval()
bits = np.array([1.5, -2.0]).view(np.int64)
batch = Batch(Packed.of([[5, 6], [7]]), Packed.of([[1, b, 2] for b in bits.tolist()]))
loss, backward = model.loss(batch)
backward(1.0)
assert loss.tokens == 2
for name, place in (("output.weight", (0, 3)), ("embed.tokens.weight", (6, 1))):
    parameter = dict(model.named_parameters())[name]
    before, ends = parameter.data.copy(), []
    for sign in (1, -1):
        parameter.data[...] = before
        parameter.data[place] += sign * 1e-6
        ends.append(model.loss(batch)[0].nats)
    parameter.data[...] = before
    np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, parameter.grad[place], rtol=1e-5)
"""


def test_the_backward_of_the_regression_agrees_with_differences() -> None:
    path = os.pathsep.join(filter(None, [str(OUTSIDE), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", BACKWARD], env=environment, check=True)
