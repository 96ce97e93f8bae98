"""The registry of commands is complete: a module that runs has a row, a row has a module."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from pellucid.apps import cli
from pellucid.apps.cli.commands import COMMANDS, UNFINISHED, listed


def test_every_module_that_runs_is_a_command_and_the_reverse() -> None:
    modules = {
        found.name: importlib.import_module(f"{cli.__name__}.{found.name}")
        for found in pkgutil.iter_modules(cli.__path__)
    }
    runs = {name for name, m in modules.items() if hasattr(m, "run") or hasattr(m, name)}
    assert runs - {"main"} == COMMANDS.keys()


def test_unfinished_work_is_of_commands() -> None:
    assert {start.split()[0] for start in UNFINISHED} <= COMMANDS.keys()


def test_summaries_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert listed({"a": "one two three four", "long": "five"}) == (
        "  a     one two\n        three four\n  long  five"
    )
