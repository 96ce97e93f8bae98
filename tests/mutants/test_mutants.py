"""A suite that passes proves something only if it fails when the code is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pellucid"
PASSED, FAILED = 0, 1  # pytest's exit codes; another means that nothing was tested


def copied(tmp_path: Path) -> Path:
    """Return a copy of the package to be changed, with Python's code of its modules."""
    ignored = shutil.ignore_patterns("*.o", "*.so")
    return Path(shutil.copytree(PACKAGE, tmp_path / "pellucid", ignore=ignored))


def change(package: Path, file: str, old: str, new: str) -> None:
    """Replace one piece of a file; Python's code of it must not be what it was."""
    page = package / file
    source = page.read_text(encoding="utf-8")
    assert source.count(old) == 1, f"{file} has changed; the patch must follow it"
    page.write_text(source.replace(old, new), encoding="utf-8")
    Path(cache_from_source(page)).unlink(missing_ok=True)


def run(package: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    """Run tests against the package at `package`."""
    named = [test.split(": ") for test in tests]
    files = sorted({f"tests/nn/{file}" for file, _ in named})
    chosen = " or ".join(f"({words})" for _, words in named)
    paths = f"pythonpath={package.parent} {ROOT}"
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", paths, "-k", chosen]
    own = {
        "PYTHONPATH": str(package.parent),
        "PELLUCID_KERNELS": "off",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # importing them took most of the time
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=ROOT,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.fault for m in MUTANTS])
def test_the_fault_is_seen(mutant: Mutant, tmp_path: Path) -> None:
    package = copied(tmp_path)
    change(package, mutant.file, mutant.old, mutant.new)
    done = run(package, [mutant.test])
    assert done.returncode == FAILED, f"{mutant.test} did not fail:\n{done.stdout}{done.stderr}"


def test_without_a_fault_they_pass(tmp_path: Path) -> None:
    package = copied(tmp_path)
    done = run(package, {mutant.test for mutant in MUTANTS})
    assert done.returncode == PASSED, done.stdout + done.stderr
