"""Run the tests that mirror what changed: `make quick`.

    python scripts/mirrored.py              # since the branch left main, and what is not committed
    python scripts/mirrored.py FILE...      # of these files

A file src/pellucid/A/B.py is mirrored by tests/A/test_B.py, or the file of that name in the nearest
folder above; if there is none, by the tests in the nearest folder that have B in their names. The
imports between floors are always tested.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "pellucid", ROOT / "tests"
NO_TESTS = 5  # pytest's exit code


def changed() -> list[Path]:
    """Return the files that differ from main, and those that git does not know."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.split("\0")[:-1]

    try:
        base = "".join(git("merge-base", "-z", "HEAD", "main")) or "HEAD"
    except subprocess.CalledProcessError:
        base = "HEAD"
    names = [
        *git("diff", "--name-only", "-z", base),
        *git("ls-files", "--others", "--exclude-standard", "-z"),
    ]
    return [ROOT / name for name in names]


def mirrored(path: Path) -> list[str]:
    """Return pytest's arguments for the tests of one file, none if nothing mirrors it."""
    if path.is_relative_to(TESTS):
        return [str(path)] if path.name.startswith("test_") and path.exists() else []
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
    """Return the calls of pytest, without its options: one for whole files, one for each -k."""
    each = [found for path in files if (found := mirrored(path))]
    whole = sorted({found[0] for found in each if len(found) == 1})
    chosen = sorted({tuple(found) for found in each if len(found) > 1})
    return [[str(TESTS / "test_imports.py"), *whole], *map(list, chosen)]


def main(arguments: Sequence[str]) -> int:
    """Run them; return 1 if one fails."""
    files = [Path(name).resolve() for name in arguments] or changed()
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not alone and not oracle"]
    for words in commands(files):
        print("pytest", *(word.removeprefix(f"{ROOT}/") for word in words), flush=True)
        done = subprocess.run([sys.executable, "-m", "pytest", *options, *words], cwd=ROOT)
        if done.returncode not in (0, NO_TESTS):
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
