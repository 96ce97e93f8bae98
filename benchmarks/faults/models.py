"""Models with one damaged file: refused with a message, or the same answers.

If the checksums are rewritten, which is malice and not damage, answers may differ; but there must
be no traceback, endless run or full memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
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


def sum_anew(folder: Path) -> None:
    """Rewrite the checksums of a folder's files, as `sha256sum` does."""
    paths = (path for path in sorted(folder.iterdir()) if path.is_file())
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in paths
        if path.name not in ("SHA256SUMS", "README.md")
    ]
    (folder / "SHA256SUMS").write_text("".join(sums), "utf-8")


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


def flipped_bit(folder: Path, draw: np.random.Generator, files: Sequence[str] = FILES) -> None:
    """Flip one bit of one file."""
    path = folder / draw.choice(files)
    data = bytearray(path.read_bytes() or b"\0")
    data[draw.integers(len(data))] ^= 1 << int(draw.integers(8))
    path.write_bytes(data)


def truncated(folder: Path, draw: np.random.Generator, files: Sequence[str] = FILES) -> None:
    """Keep only the beginning of one file."""
    path = folder / draw.choice(files)
    os.truncate(path, draw.integers(path.stat().st_size + 1))


def zeroed(folder: Path, draw: np.random.Generator, files: Sequence[str] = FILES) -> None:
    """Overwrite a part of one file with zeros, as a lost block of a disk appears."""
    path = folder / draw.choice(files)
    data = bytearray(path.read_bytes() or b"\1")
    first = int(draw.integers(len(data)))
    data[first : first + 512] = bytes(len(data[first : first + 512]))
    path.write_bytes(data)


def exchanged(folder: Path, draw: np.random.Generator) -> None:
    """Exchange two tensors of the same shape."""
    weights = load_file(folder / WEIGHTS)
    by_shape: dict[Any, list[str]] = {}
    for name, array in weights.items():
        by_shape.setdefault(array.shape, []).append(name)
    several = [names for names in by_shape.values() if len(names) > 1]
    a, b = draw.choice(several[draw.integers(len(several))], 2, replace=False)
    weights[a], weights[b] = weights[b], weights[a]
    save_file(weights, folder / WEIGHTS)


def other_values(folder: Path, draw: np.random.Generator) -> None:
    """Set a tensor to one value: huge, zero, NaN, inf or −1; perhaps in another dtype."""
    weights = load_file(folder / WEIGHTS)
    name = draw.choice(list(weights))
    value = draw.choice([1e38, 0.0, np.nan, np.inf, -1.0])
    with np.errstate(over="ignore", invalid="ignore"):
        other = np.full_like(weights[name], value).astype(draw.choice(["f4", "f8", "f2", "i4"]))
    weights[name] = other
    save_file(weights, folder / WEIGHTS)


def other_setting(folder: Path, draw: np.random.Generator) -> None:
    """Set one setting to another value."""
    path = folder / CONFIG
    settings = json.loads(path.read_text("utf-8"))
    values = [0, 1, -1, 7, 1e300, 0.5, None, "post", "pre", "gelu", "none", True, [], "x" * 9999]
    settings[draw.choice(list(settings))] = values[draw.integers(len(values))]
    path.write_text(json.dumps(settings), "utf-8")


def replaced(folder: Path, draw: np.random.Generator, files: Sequence[str] = FILES) -> None:
    """Replace one file by a pipe, a device, a folder, a broken link, or nothing."""
    path = folder / draw.choice(files)
    path.unlink()
    what = draw.integers(6)
    if what == 0:
        os.mkfifo(path)
    elif what == 1:
        path.symlink_to("/dev/zero")
    elif what == 2:
        path.mkdir()
    elif what < 5:
        path.symlink_to(["nothing", path.name][what - 3])


def multiplied(folder: Path, draw: np.random.Generator) -> None:
    """Make the tokenizer's normaliser replace each e by several, repeatedly."""
    path = folder / "tokenizer.json"
    file = json.loads(path.read_text("utf-8"))
    content = str(draw.integers(10)) + "e" * int(draw.integers(2, 9))
    step = {"type": "Replace", "pattern": {"String": "e"}, "content": content}
    steps = [step] * int(draw.integers(1, 40))
    file["normalizer"] = {"type": "Sequence", "normalizers": steps}
    path.write_text(json.dumps(file), "utf-8")


def other_positions(folder: Path, draw: np.random.Generator) -> None:
    """Give the model room for very many tokens."""
    path = folder / CONFIG
    settings = json.loads(path.read_text("utf-8"))
    settings["max_position_embeddings"] = int(2 ** draw.uniform(0, 70))
    path.write_text(json.dumps(settings), "utf-8")


DAMAGES: tuple[Damage, ...] = (
    flipped_bit, truncated, zeroed, exchanged, other_values, other_setting, replaced,
)  # fmt: skip
MALICE: tuple[Damage, ...] = (
    flipped_bit, exchanged, other_values, other_setting, multiplied, other_positions,
)  # fmt: skip


class Models:
    """Each case damages one file of a model, loads it and asks it.

    anew: the checksums are rewritten after the damage.
    """

    def __init__(self, place: Path, anew: bool = False) -> None:
        self.folder, self.place, self.anew = place / "model", place, anew
        self.units = "models with new digests" if anew else "damaged models"
        self.damages = MALICE if anew else DAMAGES
        write(self.folder)
        self.expected = pellucid.load(self.folder).generate(TEXTS)

    def __call__(self, number: int) -> Case:
        """Run one case."""
        damage = self.damages[number % len(self.damages)]
        draw = np.random.default_rng(number)
        copy = self.place / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder, copy)
        damage(copy, draw)
        if self.anew:
            sum_anew(copy)

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
            other = "other answers" if self.anew else "OTHER ANSWERS"
            became = "same answers" if same else other
        told = ended.err[-500:] if became[:1].isupper() else ""
        return Case(damage.__name__.replace("_", " "), became, seconds=ended.seconds, figures=told)


class Kernels:
    """Each case damages one file in the cache of compiled kernels.

    A new process must answer.
    """

    units = "damaged kernel files"

    def __init__(self, place: Path) -> None:
        self.place = place
        write(place / "model")
        self.expected = self.ask("cache")
        if self.expected.returncode or not list((place / "cache").iterdir()):
            raise RuntimeError(f"exit code {self.expected.returncode}: {self.expected.stderr}")

    def ask(self, cache: str) -> subprocess.CompletedProcess[str]:
        """Answer texts in a new process with this cache."""
        command = [sys.executable, "-m", "pellucid", "generate", str(self.place / "model"), *TEXTS]
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(self.place / cache)}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def __call__(self, number: int) -> Case:
        """Run one case."""
        draw, copy = np.random.default_rng(number), self.place / "copy"
        damage = (flipped_bit, truncated, zeroed, replaced)[draw.integers(4)]
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.place / "cache", copy)
        damage(copy, draw, sorted(path.name for path in copy.iterdir()))
        ended = self.ask("copy")
        same = (ended.returncode, ended.stdout) == (0, self.expected.stdout)
        became = "same answers" if same else f"OTHER: exit code {ended.returncode}"
        kind = damage.__name__.replace("_", " ")
        return Case(kind, became, figures="" if same else ended.stderr[-500:])
