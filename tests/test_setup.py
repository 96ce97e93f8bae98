"""`make` finds a Python that it can use, or says which it looked for and what to install."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def make(tmp_path: Path, *options: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Let make create an environment where the path has these shell scripts and no other Python."""
    found = tmp_path / "bin"
    found.mkdir()
    for tool in ("make", "mkdir", "pwd", "rm", "sh", "touch", "cat"):
        (found / tool).symlink_to(str(shutil.which(tool)))
    for name, script in programs.items():
        (found / name.replace("_", ".")).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (found / name.replace("_", ".")).chmod(0o755)
    venv = tmp_path / "venv"
    command = ["make", "-C", str(ROOT), f"VENV={venv}", *options, f"{venv}/made/venv"]
    return subprocess.run(command, env={"PATH": str(found)}, capture_output=True, text=True)


def test_the_first_python_that_runs_and_is_accepted_is_taken(tmp_path: Path) -> None:
    shim = "exit 127"
    done = make(
        tmp_path, python3_12=shim, python3="echo 3.10", python=f'exec {sys.executable} "$@"'
    )
    assert done.returncode == 0, done.stderr
    assert "(python)" in done.stdout
    assert (tmp_path / "venv" / "bin" / "python").exists()


def test_what_was_looked_for_and_found_is_named(tmp_path: Path) -> None:
    done = make(tmp_path, python3="echo 3.10")
    assert done.returncode == 2
    for words in (
        "Python 3.11 to 3.14",
        "python3.13 python3.14 python3",
        "python3 is 3.10",
        "PATH",
    ):
        assert words.lower() in done.stderr.lower()


def test_the_package_of_a_missing_venv_is_that_of_the_python_found(tmp_path: Path) -> None:
    done = make(tmp_path, python3='case "$2" in *ensurepip*) exit 1;; esac; echo 3.13')
    assert done.returncode == 2
    assert "apt install python3.13-venv" in done.stderr


def test_one_may_be_named(tmp_path: Path) -> None:
    done = make(tmp_path, "PYTHON=/nowhere/python", python3=f'exec {sys.executable} "$@"')
    assert done.returncode == 2
    assert "/nowhere/python" in done.stderr


@pytest.mark.parametrize("path", ["README.md", "docs/start.md"])
def test_the_documents_name_the_oldest_python(path: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    assert f"Python {oldest} or newer" in (ROOT / path).read_text(encoding="utf-8")
