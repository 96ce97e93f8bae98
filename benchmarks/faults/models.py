"""Models with one damaged file: refused in words, or the same answers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.faults import children
from benchmarks.faults.mode import Case
from safetensors.numpy import load_file, save_file

import pellucid
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import save_model

TEXTS = ["hello", "there he", "oh", "tree or three"]
WEIGHTS, CONFIG = "model.safetensors", "config.json"
FILES = (WEIGHTS, CONFIG, "tokenizer.json", "generation_config.json", "SHA256SUMS")

Damage = Callable[[Path, np.random.Generator], None]


def write(folder: Path) -> None:
    """Save a small untrained model whose answers depend on every weight."""
    tokens = train_tokenizer(["hello there, tree or three"], "char", None, ())
    config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=12, ffn_dim=7,
                           num_attention_heads=3, encoder_layers=2, decoder_layers=2)  # fmt: skip
    model, draw = Seq2Seq(config).eval(), np.random.default_rng(0)
    for parameter in model.parameters():
        parameter.data += np.float32(0.3) * draw.standard_normal(parameter.shape, np.float32)
    search = SearchConfig(beam=3, max_length=19)
    save_model(folder, Seq2SeqTask(model, tokens, tokens, search), "")


def flipped_bit(folder: Path, draw: np.random.Generator) -> None:
    """Flip one bit of one file."""
    path = folder / draw.choice(FILES)
    data = bytearray(path.read_bytes())
    data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
    path.write_bytes(data)


def truncated(folder: Path, draw: np.random.Generator) -> None:
    """Keep only the beginning of one file."""
    path = folder / draw.choice(FILES)
    os.truncate(path, draw.integers(path.stat().st_size))


def zeroed(folder: Path, draw: np.random.Generator) -> None:
    """Overwrite a piece of one file with zeros, as a lost block of a disk is read."""
    path = folder / draw.choice(FILES)
    data = bytearray(path.read_bytes())
    first = int(draw.integers(len(data)))
    data[first : first + 512] = bytes(len(data[first : first + 512]))
    path.write_bytes(data)


def exchanged(folder: Path, draw: np.random.Generator) -> None:
    """Exchange two tensors of one shape."""
    weights = load_file(folder / WEIGHTS)
    by_shape: dict[Any, list[str]] = {}
    for name, array in weights.items():
        by_shape.setdefault(array.shape, []).append(name)
    several = [names for names in by_shape.values() if len(names) > 1]
    a, b = draw.choice(several[draw.integers(len(several))], 2, replace=False)
    weights[a], weights[b] = weights[b], weights[a]
    save_file(weights, folder / WEIGHTS)


def other_values(folder: Path, draw: np.random.Generator) -> None:
    """Give one tensor other values: huge, zero, NaN, or of another dtype."""
    weights = load_file(folder / WEIGHTS)
    name = draw.choice(list(weights))
    value = draw.choice([1e38, 0.0, np.nan, np.inf, -1.0])
    with np.errstate(over="ignore", invalid="ignore"):
        other = np.full_like(weights[name], value).astype(draw.choice(["f4", "f8", "f2", "i4"]))
    weights[name] = other
    save_file(weights, folder / WEIGHTS)


def other_setting(folder: Path, draw: np.random.Generator) -> None:
    """Give one setting another value."""
    path = folder / CONFIG
    settings = json.loads(path.read_text("utf-8"))
    values = [0, 1, -1, 7, 1e300, 0.5, None, "post", "pre", "gelu", "none", True, [], "x" * 9999]
    settings[draw.choice(list(settings))] = values[draw.integers(len(values))]
    path.write_text(json.dumps(settings), "utf-8")


def replaced(folder: Path, draw: np.random.Generator) -> None:
    """Put a pipe, a device, a folder or nothing in place of one file."""
    path = folder / draw.choice(FILES)
    path.unlink()
    what = draw.integers(4)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        path.symlink_to("/dev/zero")
    elif what == 2:
        path.mkdir()


DAMAGES: tuple[Damage, ...] = (
    flipped_bit, truncated, zeroed, exchanged, other_values, other_setting, replaced,
)  # fmt: skip


class Models:
    """Each case damages one file of a model, loads it and asks it."""

    units = "damaged models"

    def __init__(self, place: Path) -> None:
        self.folder, self.place = place / "model", place
        write(self.folder)
        self.expected = pellucid.load(self.folder).generate(TEXTS)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        damage, draw = DAMAGES[number % len(DAMAGES)], np.random.default_rng(number)
        copy = self.place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        damage(copy, draw)

        def ask() -> int:
            try:
                print(json.dumps(pellucid.load(copy).generate(TEXTS)))
            except UserError as error:
                print(error, file=sys.stderr)
                return 1
            return 0

        ended = children.run(ask, self.place)
        became = children.verdict(ended)
        if became == "done":
            same = json.loads(ended.out) == self.expected
            became = "same answers" if same else "OTHER ANSWERS"
        told = ended.err if became.isupper() else ""
        return Case(damage.__name__.replace("_", " "), became, seconds=ended.seconds, figures=told)
