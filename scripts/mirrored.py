"""Run the tests that mirror what changed: `make quick`.

    python scripts/mirrored.py              # since the branch left main, and what is not committed
    python scripts/mirrored.py FILE...      # of these files

A file src/pellucid/A/B.py is mirrored by tests/A/test_B.py, or the file of that name in the nearest
folder above; if there is none, by the tests in the nearest folder that have B in their names; if
there are none, by those whose files mention B, or else by all of that folder. scripts/B.py and B.md
are mirrored by tests/test_B.py. The imports between floors are always tested. After two minutes
what is left is named, and not run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "pellucid", ROOT / "tests"
INTERRUPTED, NO_TESTS = 2, 5  # pytest's exit codes
SECONDS = 120


def changed() -> list[Path]:
    """Return the files that differ from main, and untracked files."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    try:
        base = git("merge-base", "HEAD", "main").strip()
    except subprocess.CalledProcessError:  # a clone may have no main
        base = "HEAD"
    names = git("diff", "--name-only", "-z", base)
    names += git("ls-files", "--others", "--exclude-standard", "-z")
    return [ROOT / name for name in names.split("\0")[:-1]]


def mirrored(path: Path) -> list[str]:
    """Return pytest's arguments for the tests of one file; [] if it has none."""
    if path.is_relative_to(TESTS):
        return [str(path)] if path.name.startswith("test_") and path.exists() else []
    if path.parent in (ROOT, ROOT / "scripts"):  # README.md is mirrored by tests/test_readme.py
        own = TESTS / f"test_{path.name.partition('.')[0].lower()}.py"
        return [str(own)] if own.exists() else []
    if not path.is_relative_to(SOURCE) or path.suffix != ".py":
        return []
    inside = path.relative_to(SOURCE)
    name = inside.stem if inside.stem != "__init__" else inside.parent.name
    for folder in (TESTS / parent for parent in inside.parents[:-1]):
        if (exact := folder / f"test_{inside.stem}.py").exists():
            return [str(exact)]
    folder = TESTS / inside.parent
    while not folder.is_dir():
        folder = folder.parent
    return [str(folder), "-k", name] if folder != TESTS else []


def commands(files: Iterable[Path]) -> list[list[str]]:
    """Return pytest's arguments for each call: one for whole files, one for each -k."""
    each = [found for path in files if (found := mirrored(path))]
    whole = sorted({found[0] for found in each if len(found) == 1})
    chosen = sorted({tuple(found) for found in each if len(found) > 1})
    return [[str(TESTS / "test_imports.py"), *whole], *map(list, chosen)]


def mentioning(folder: str, name: str) -> list[str]:
    """Return the test files in a folder that mention a name; the folder if none does."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    paths = sorted(Path(folder).rglob("test_*.py"))
    return [str(path) for path in paths if word.search(path.read_text("utf-8"))] or [folder]


def run(words: Sequence[str], until: float) -> int:
    """Run pytest until it ends, or interrupt it at a time; return its exit code."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not alone and not oracle"]
    print("pytest", *(word.removeprefix(f"{ROOT}/") for word in words), flush=True)
    # Where SIGINT is ignored, as in the background of a shell, pytest would ignore it too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen([sys.executable, "-m", "pytest", *options, *words], cwd=ROOT)
    signal.signal(signal.SIGINT, before)
    try:
        return process.wait(max(0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()
        return INTERRUPTED


def main(arguments: Sequence[str], seconds: float = SECONDS) -> int:
    """Run the tests of changed or named files; return 1 if one fails."""
    until = time.monotonic() + seconds
    files = [Path(name).resolve() for name in arguments] or changed()
    left = commands(files)
    while left:
        words = left.pop(0)
        code = run(words, until)
        if code == NO_TESTS and "-k" in words:
            left.insert(0, mentioning(words[0], words[-1]))
        elif code == INTERRUPTED and time.monotonic() >= until:
            print(f"{seconds:.0f} s are over. Not run to the end, or not at all:")
            for each in [words, *left]:
                print("   ", *(word.removeprefix(f"{ROOT}/") for word in each))
            break
        elif code not in (0, NO_TESTS):
            return 1
    print(f"{sum(os.times()[:4]):.0f} s of processor time; make test runs everything")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
