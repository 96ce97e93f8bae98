"""A study small enough to run in a second: digits and their names, a model of width 12."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from pellucid.apps.lab.results import Line, open_results

RECIPE = """
[data]
train = ["{folder}/pairs.tsv"]
held_out = 0.2
batch_size = 7
max_tokens = 20

[tokenizer]
kind = "char"

[model]
d_model = 12
num_attention_heads = 3
encoder_layers = 1
decoder_layers = 1
ffn_dim = 17
max_position_embeddings = 23

[training]
epochs = {epochs}
log_every = 2

[training.schedule]
name = "constant"
lr = 5e-3
"""
STUDY = """
format = 1
question = "Is it the scale?"
recipe = "recipe.toml"
base = "sqrt"
seeds = [0, 1, 2]
metrics = ["train_loss", "valid_loss"]
minutes_per_run = 0.1
probe_steps = [0, 3]

[[primary]]
change = "linear"
metric = "train_loss"
claim = "d_k is better"

[changes.linear]
about = "scores / d_k"
set.model.attention_scale = "d_k"

[changes.none]
seeds = 2
set.model.attention_scale = "none"
"""
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def write_study(folder: Path, text: str = STUDY, epochs: int = 2) -> Path:
    """Write pairs, recipe and study; return the study's path."""
    rows = [f"{a}{b}\t{NAMES[a]} {NAMES[b]}" for a in range(7) for b in range(7)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    recipe = RECIPE.format(folder=folder.as_posix(), epochs=epochs)
    (folder / "recipe.toml").write_text(recipe)
    path = folder / "scale.toml"
    path.write_text(text, encoding="utf-8")
    return path


def append_result(path: Path, line: Line) -> None:
    """Append one line to a results file."""
    with open_results(path) as append:
        append(line)


class Here(Executor):
    """Runs what it is given at once, in this process."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call f now."""
        self.calls += 1
        future: Future[Any] = Future()
        try:
            future.set_result(f(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
