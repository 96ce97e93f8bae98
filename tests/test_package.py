"""What the package holds besides modules, and what is promised of it."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("path", ["recipes/chatbot-ko.toml", "studies/exponent.toml"])
def test_recipes_and_studies_are_in_it(path: str) -> None:
    assert files("pellucid").joinpath(path).is_file()


def test_type_checkers_are_told_that_it_is_typed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "Typing :: Typed" in project["classifiers"]
    assert files("pellucid").joinpath("py.typed").is_file()
