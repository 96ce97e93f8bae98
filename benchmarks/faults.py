"""What damage does: models damaged in many ways, answers from many threads and processes.

    python -m benchmarks.faults [--damages 200] [--seconds 60]

A small model is saved, one file of a copy is damaged, and the copy is loaded and asked. It may be
refused in words or answer as before; to answer otherwise, to end in another exception or to take
more than 10 s is a failure. Then 8 threads, and 4 processes each by spawn and by fork, answer with
one model; every answer must be the same. The exit code is 1 after a failure.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import pellucid
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.families.folder import save_model
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.pipelines import Seq2SeqPipeline

TEXTS = ["hello", "there he", "oh", "tree or three"]
WEIGHTS, CONFIG = "model.safetensors", "config.json"
FILES = (WEIGHTS, CONFIG, "tokenizer.json", "generation_config.json", "SHA256SUMS")
SLOW = 10.0

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
    save_model(folder, Seq2SeqPipeline(model, tokens, tokens, search), "")


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


def outcome(folder: Path, expected: list[str]) -> str:
    """Load a model and ask it: what became of it."""
    began = time.perf_counter()
    try:
        same = pellucid.load(folder).best(TEXTS) == expected
        found = "same answers" if same else "OTHER ANSWERS"
    except UserError:
        found = "refused"
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        found = "TRACEBACK"
    return "SLOW" if time.perf_counter() - began > SLOW else found


def damaged_models(folder: Path, count: int) -> bool:
    """Damage the model `count` times; print a table, return whether nothing failed."""
    expected, found = pellucid.load(folder).best(TEXTS), Counter[tuple[str, str]]()
    for i in range(count):
        damage, draw = DAMAGES[i % len(DAMAGES)], np.random.default_rng(i)
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy)
        damage(copy, draw)
        became = outcome(copy, expected)
        if became.isupper():
            print(f"{damage.__name__}, number {i}: {became}", file=sys.stderr)
        found[damage.__name__, became] += 1
        shutil.rmtree(copy)
    print("| damage | refused | same answers | failures |\n|---|---:|---:|---:|")
    for name in [damage.__name__ for damage in DAMAGES]:
        own = Counter({became: n for (of, became), n in found.items() if of == name})
        good = own["refused"], own["same answers"]
        print(f"| {name} | {good[0]} | {good[1]} | {own.total() - sum(good)} |")
    return not any(became.isupper() for _, became in found)


def shared_model(folder: Path, seconds: float) -> bool:
    """Answer from threads and processes; print a line each, return whether all were equal."""
    trained = pellucid.load(folder)
    expected = trained.best(TEXTS)
    counts, ends = [0] * 8, time.monotonic() + seconds
    wrong: list[int] = []

    def answer(i: int) -> None:
        while time.monotonic() < ends:
            counts[i] += 1
            if trained.best(TEXTS) != expected:
                wrong.append(i)

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"8 threads, {seconds:g} s: {sum(counts)} rounds, {len(wrong)} of them otherwise")
    right = not wrong
    for method in ("spawn", "fork"):
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(4, mp_context=context) as processes:
            equal = [some == expected for some in processes.map(trained.best, [TEXTS] * 16)]
        print(f"4 processes by {method}: {len(equal)} rounds, {equal.count(False)} otherwise")
        right = right and all(equal)
    return right


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--damages", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        write(folder)
        whole = damaged_models(folder, options.damages)
        equal = shared_model(folder, options.seconds)
    return int(not (whole and equal))


if __name__ == "__main__":
    raise SystemExit(main())
