"""Names of a package are there whichever of its modules was imported first."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import pellucid.models
import pellucid.nn
import pellucid.ops.rules


@pytest.mark.parametrize(
    "module", ["pellucid.generation.search", "pellucid.ops.softmax", "pellucid.ops.attention"]
)
def test_a_module_does_not_hide_what_has_its_name(module: str) -> None:
    package, _, name = module.rpartition(".")
    code = f"import {module}; from {package} import {name}; assert callable({name}), {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "package", [pellucid.nn, pellucid.ops, pellucid.ops.rules, pellucid.models]
)
def test_completion_offers_every_name_before_any_was_used(package: ModuleType) -> None:
    code = f"import {package.__name__} as p; print(sorted(set(p.__all__) - set(dir(p))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
