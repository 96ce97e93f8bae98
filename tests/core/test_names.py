"""Names of a package are there whichever of its modules was imported first."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module", ["pellucid.generation.search", "pellucid.ops.softmax", "pellucid.ops.attention"]
)
def test_a_module_does_not_hide_what_has_its_name(module: str) -> None:
    package, _, name = module.rpartition(".")
    code = f"import {module}; from {package} import {name}; assert callable({name}), {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
