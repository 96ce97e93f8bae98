"""Record the results of a Pellucid through its command line, and compare two records.

    python scripts/golden.py record FOLDER --pellucid COMMAND [--only NAME ...] [--models RECORD]
    python scripts/golden.py compare A B

COMMAND is a path, or a command such as "python -m pellucid". NAME is the beginning of an item's
name: recipe, variant.alibi, answers … golden.toml lists the items. With --models the trained models
of another record are used, so that only the code that answers differs. Items that need a package
which is not installed are skipped.

Arrays computed without kernels must have equal bits on one machine; others may differ by 1e-5 of
their largest value, int8 answers by 3e-4. Texts and files must be equal. `compare` exits with 1 if
an item differs; items in only one record are listed, and do not count.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import tomli_w
from safetensors.numpy import load_file

from golden_item import NEAR, NEAR_INT8, Item, compare_records, flat, save

GIVEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "huggingface"


def sums(folder: Path, pattern: str) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder that matches a pattern."""
    files = sorted(folder.glob(pattern))
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def weights(model: Path) -> str:
    """Return the SHA-256 of a model folder's weights."""
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


class MissingPackageError(Exception):
    """The command needs a package that is not installed."""


@dataclass
class Recorder:
    """Runs the command in FOLDER/work; the models that it trains are in FOLDER/runs."""

    folder: Path
    command: Sequence[str]
    models: Path | None
    trained: set[str] = field(default_factory=set)

    def call(self, *arguments: str | Path, kernels: bool = True, lines: Sequence[str] = ()) -> str:
        """Run the command with lines on standard input; return its output."""
        state = "on" if kernels else "off"
        own = {"OMP_NUM_THREADS": GIVEN["threads"][state], "PELLUCID_LANG": "en"}
        done = subprocess.run(
            [*self.command, *map(str, arguments)],
            cwd=self.folder / "work",
            env={**os.environ, **own, "PELLUCID_KERNELS": state},
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            encoding="utf-8",
        )
        if done.returncode:
            message = " ".join(done.stderr.translate(dict.fromkeys(map(ord, "╭╮╰╯│─"))).split())
            error = MissingPackageError if "pip install" in message else RuntimeError
            raise error(message[:400])
        return done.stdout

    def train(self, name: str) -> Path:
        """Train a model unless it was trained already; return its run folder.

        name: `recipe.NAME.HOW`, `long.NAME.HOW` or `variant.NAME.HOW`; HOW is `on` or `off`, with
        or without kernels.
        """
        run, (kind, what, kernels) = self.folder / "runs" / name, name.split(".")
        if name not in self.trained:
            options = GIVEN["options"]
            if kind == "variant":
                family, *rest = GIVEN["variants"][what].split()
                rest.insert(0, f"{family}.toml")
            else:
                length = options["long" if kind == "long" else kernels]
                rest = f"{GIVEN['recipes'][what]} {options['recipes']} {length}".split()
            self.call("train", *rest, "--run", self.fresh(run), kernels=kernels == "on")
            shutil.rmtree(run / "checkpoints")
            self.trained.add(name)
        return run

    def model(self, name: str) -> Path:
        """Return the model folder of a run, from the other record with --models."""
        return (self.models / "runs" / name if self.models else self.train(name)) / "model"

    def fresh(self, path: str | Path) -> Path:
        """Delete a path in the work folder and return it."""
        shutil.rmtree(self.folder / "work" / path, ignore_errors=True)
        return self.folder / "work" / path

    def training(self, name: str) -> Item:
        """Record losses, weights and the digests of tokenizers of a training run."""
        run = self.train(name)
        lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        arrays = load_file(run / "model" / "model.safetensors")
        events = [json.loads(line) for line in lines]
        for event, key, dtype in GIVEN["metrics"]:
            rows = [e for e in events if e["event"] == event]
            arrays[f"{event}.{key}"] = np.array([row[key] for row in rows], dtype)
        return Item(arrays, sums(run / "model", "*tokenizer.json"), NEAR * name.endswith(".on"))

    def answers(self, name: str, options: str, lines: list[str], how: str) -> Item:
        """Record the answers of a model: with kernels on, off, or of its int8 copy."""
        folder = model = self.model(name)
        if how == "int8":
            folder = self.fresh("int8")
            self.call("quantize", model, folder, "--weights", "int8")
        given = ["--json", *options.split()]
        printed = self.call("generate", folder, *given, lines=lines, kernels=how != "off")
        within = {"on": NEAR, "off": 0.0, "int8": NEAR_INT8}[how]
        return Item(*flat(list(map(json.loads, printed.splitlines()))), within, weights(model))

    def scores(self, name: str, options: str) -> Item:
        """Record the scores of `evaluate` on the generated words."""
        model = self.model(name)
        printed = self.call("evaluate", model, "--data", "pairs.tsv", "--json", *options.split())
        return Item(*flat(json.loads(printed)), NEAR, weights(model))

    def page(self, name: str, arguments: list[str]) -> Item:
        """Record the data in a model's HTML page."""
        model, page = self.model(name), self.folder / "work" / "page.html"
        self.call("view", model, *arguments, "--output", page)
        record = page.read_text(encoding="utf-8").split('<script id="record"')[1]
        record = record[record.index(">") + 1 : record.index("</script>")]
        return Item(*flat(json.loads(record)), NEAR, weights(model))

    def files(self, name: str, command: str, *options: str) -> Item:
        """Record the digests of files that a command makes of a model or a fixture."""
        model = self.model(name) if "." in name else FIXTURES / name
        self.call(command, model, folder := self.fresh("made"), *options)
        own = {"onnx": "*.onnx", "int8": "*.safetensors", "float16": "*.safetensors"}
        return Item({}, sums(folder, own.get(options[-1], "*")), 0.0, weights(model))

    def items(self) -> Iterator[tuple[str, Callable[[], Item]]]:
        """Yield (name, function that computes it) of every item."""
        for kind, names in (("recipe", GIVEN["recipes"]), ("variant", GIVEN["variants"])):
            for name in (f"{kind}.{what}.{how}" for what, how in product(names, ("on", "off"))):
                yield name, partial(self.training, name)
        tiny = GIVEN["tiny_answers"]
        for what in tiny["variants"]:
            call = partial(
                self.answers, f"variant.{what}.off", tiny["options"], tiny["lines"], "on"
            )
            yield f"answers.{what}", call
        for what, given in GIVEN["answers"].items():
            for (search, options), how in product(given["options"].items(), given["kernels"]):
                call = partial(self.answers, given["model"], options, given["lines"], how)
                yield f"answers.{what}.{search}.{how}", call
        for name, options in GIVEN["scores"].items():
            yield f"scores.{name}", partial(self.scores, name, options)
        for name, arguments in GIVEN["view"].items():
            yield f"view.{name}", partial(self.page, name, arguments)
        for command, name, *options in GIVEN["files"]:
            yield (
                ".".join((command, options[-1], name)),
                partial(self.files, name, command, *options),
            )

    def record(self, name: str, compute: Callable[[], Item]) -> Item:
        """Compute and write an item, or the reason why it could not be computed."""
        try:
            item = compute()
        except MissingPackageError as error:
            item = Item(skipped=str(error))
        except (RuntimeError, OSError, LookupError, ValueError) as error:
            item = Item(failed=repr(error))
        save(self.folder / f"{name}.item", item)
        return item

    def prepare(self) -> None:
        """Write the settings, and the generated words that the variants are trained on."""
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        for family in ("seq2seq", "causal-lm", "masked-lm"):
            model = {"model_type": f"pellucid-{family}", **GIVEN["tiny"]["model"]}
            text = tomli_w.dumps({**GIVEN["tiny"], "model": model})
            (self.folder / "work" / f"{family}.toml").write_text(text, encoding="utf-8")
        triples = enumerate(product("abcdef", repeat=3))
        words = ("".join(triple) * (1 + i % 3) for i, triple in triples)
        pairs = "".join(f"{word}\t{word[::-1].upper()}\n" for word in words)
        (self.folder / "work" / "pairs.tsv").write_text(pairs, encoding="utf-8")


def record(recorder: Recorder, only: Sequence[str]) -> int:
    """Record the items whose names begin with one of `only`; return 1 if one failed."""
    recorder.prepare()
    failures = 0
    for name, compute in recorder.items():
        if not name.startswith(tuple(only) or ""):
            continue
        start = time.monotonic()
        item = recorder.record(name, compute)
        failures += bool(item.failed)
        found = item.failed or (item.skipped and f"skipped: {item.skipped}") or item.digest()
        print(f"{time.monotonic() - start:5.1f} s  {name:34} {found:.100}", flush=True)
    return int(failures > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record or compare; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--pellucid", required=True, type=shlex.split)
    recording.add_argument("--only", nargs="+", default=[])
    recording.add_argument("--models", type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("records", nargs=2, type=Path)
    given = parser.parse_args(arguments)
    if given.command == "compare":
        return compare_records(*given.records)
    models = given.models and given.models.resolve()
    return record(Recorder(given.folder.resolve(), given.pellucid, models), given.only)


if __name__ == "__main__":
    sys.exit(main())
