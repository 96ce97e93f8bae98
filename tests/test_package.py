"""What the package holds besides modules, what is promised of it, and what it is tested with."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pellucid.apps.lab.study_file import SHIPPED

ROOT = Path(__file__).parents[1]
FILE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, BUILD = FILE["project"], FILE["tool"]["hatch"]["build"]
OURS = {"pellucid", "pip", "setuptools"}  # the package, and what `python -m venv` brings
made_by_make = pytest.mark.skipif(
    not Path(sys.prefix, "made", "dev").exists(), reason="not the environment of `make test`"
)


def test_recipes_are_in_it_and_studies_with_their_files_are_put_there() -> None:
    assert files("pellucid").joinpath("recipes/chatbot-ko.toml").is_file()
    included = BUILD["targets"]["wheel"]["force-include"]
    assert included["studies"] == "pellucid/studies"
    assert {"exponent.toml", "exponents.py"} <= {path.name for path in SHIPPED.iterdir()}


def test_the_package_is_marked_as_typed() -> None:
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert files("pellucid").joinpath("py.typed").is_file()


def locked(name: str) -> dict[str, str]:
    """Return the versions that a lock file gives this Python, by name."""
    lines = (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line.rstrip(" \\")) for line in lines if "==" in line]
    return {
        canonicalize_name(one.name): str(one.specifier).removeprefix("==")
        for one in wanted
        if one.marker is None or one.marker.evaluate()
    }


@pytest.mark.parametrize("lock", ["dev.txt", "oracles.txt"])
def test_a_lock_has_what_the_tests_ask_for(lock: str) -> None:
    groups = PROJECT["optional-dependencies"]
    extras = ("kernels", "train", "cli", "demo", "docs", "eval", "lab", "serve", "test", "dev")
    wanted = [*PROJECT["dependencies"], *(one for extra in extras for one in groups[extra])]
    for requirement in map(Requirement, wanted):
        if requirement.name in ("pip", "pellucid"):  # they are no part of the lock
            continue
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(locked(lock)[canonicalize_name(requirement.name)])


@made_by_make
def test_the_environment_is_the_locks() -> None:
    here = {canonicalize_name(one.name): one.version for one in distributions()}
    here = {name: version for name, version in here.items() if name not in OURS}
    lock = locked("dev.txt")
    assert {name: here.get(name) for name in lock} == lock
    more = sorted(here.keys() - lock.keys())
    if more and "CI" not in os.environ:
        pytest.skip(f"packages that the lock does not have were installed: {', '.join(more)}")
    assert more == []


@made_by_make
def test_the_lock_is_complete() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
