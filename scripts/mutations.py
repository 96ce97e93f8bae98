"""Change one token of the package at random, and see whether the tests that mirror the file fail.

    python scripts/mutations.py --seed 1 --count 30 --results FILE

Each mutation is made in a copy of the package. Survivors are listed: some change no result, and
each of the others wants a test. What takes longer than --timeout seconds of a processor is counted
by itself. FILE gets a line for each mutation, with the test that failed; a run that is begun again
with the same file goes on after the last line.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from mirrored import NO_TESTS, ROOT, SOURCE, mirrored

PACKAGES = ("ops", "nn", "kernels", "training", "generation", "data", "tasks")
SWAPS = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "<": "<=", "<=": "<", ">": ">=",
    ">=": ">", "==": "!=", "!=": "==", "and": "or", "or": "and", "True": "False",
    "False": "True", "0": "1", "1": "2", "min": "max", "max": "min", "not": "",
    "is": "is not", "0.0": "1.0", "1.0": "2.0",
}  # fmt: skip


class Mutation(NamedTuple):
    """A change of one token of a file."""

    file: Path
    line: int
    column: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.old!r} -> {self.new!r}"

    def source(self) -> str:
        """Return the text of the file with the change."""
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        before = lines[self.line - 1]
        rest = before[self.column + len(self.old) :]
        lines[self.line - 1] = before[: self.column] + self.new + rest
        return "".join(lines)


def mutations() -> list[Mutation]:
    """Return all mutations of the packages' files that have tests; some are not valid Python."""
    found = []
    for package in PACKAGES:
        for path in sorted((SOURCE / package).rglob("*.py")):
            if not mirrored(path):
                continue
            text = io.StringIO(path.read_text(encoding="utf-8"))
            for token in tokenize.generate_tokens(text.readline):
                new = SWAPS.get(token.string)
                if new is None or token.line.lstrip().startswith(("from ", "import ", "def ")):
                    continue
                found.append(Mutation(path, *token.start, token.string, new))
    return found


def outcome(mutation: Mutation, timeout: int) -> str:
    """Run the tests that mirror a mutated file: "killed by …", "survived" or "timed out"."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout))

    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        package = Path(shutil.copytree(SOURCE, Path(folder) / "pellucid", ignore=ignored))
        (package / mutation.file.relative_to(SOURCE)).write_text(mutation.source(), "utf-8")
        options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not alone and not oracle"]
        beside = (ROOT / name for name in ("", "scripts", "scripts/website", "examples"))
        options += ["-o", f"pythonpath={' '.join(map(str, (folder, *beside)))}"]
        own = {"PYTHONPATH": folder, "NUMBA_CACHE_DIR": f"{folder}/cache"}
        tried = [mirrored(mutation.file)]
        for words in tried:
            command = [sys.executable, "-m", "pytest", *options, *words]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=os.environ | own, timeout=8 * timeout,
                    capture_output=True, text=True, preexec_fn=limit,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return "timed out"
            if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return "timed out"
            if done.returncode == NO_TESTS:  # of that name: all of the folder
                tried.append(words[:1])
            elif done.returncode:
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return f"killed by {failed[1] if failed else f'exit code {done.returncode}'}"
    return "survived"


def compiles(mutation: Mutation) -> bool:
    """Return whether the mutated file is valid Python."""
    try:
        compile(mutation.source(), str(mutation.file), "exec")
    except SyntaxError:
        return False
    return True


def main() -> None:
    """Draw mutations, test each, and print each outcome and how many of each kind there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--results", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    every = mutations()
    random.Random(asked.seed).shuffle(every)
    chosen = [m for m in every if compiles(m)][: asked.count]
    lines = asked.results.read_text(encoding="utf-8").splitlines() if asked.results.exists() else []
    with asked.results.open("a", encoding="utf-8") as results:
        for mutation in chosen[len(lines) :]:
            lines.append(f"{mutation}: {outcome(mutation, asked.timeout)}")
            print(f"{len(lines)}/{len(chosen)} {lines[-1]}", flush=True)
            print(lines[-1], file=results, flush=True)
    kinds = Counter(line.rpartition(": ")[2].partition(" by ")[0] for line in lines)
    print(", ".join(f"{count} {kind}" for kind, count in kinds.items()))


if __name__ == "__main__":
    main()
