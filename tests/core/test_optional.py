"""What is not installed is named with the extra that has it, never called a bug."""

import subprocess
import sys
import tomllib
from pathlib import Path

from pellucid.apps.cli.main import describe
from pellucid.core.errors import EXTRAS, install

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
BLOCK = """
import sys
sys.modules.update(dict.fromkeys({modules}))  # None: the import raises ModuleNotFoundError
import importlib.util
from pathlib import Path
there = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "numba" else there(name, *a)
"""
ALL = ["numba", "llvmlite", *EXTRAS["train"], *EXTRAS["cli"]]
WORKS = """
import numpy as np, pellucid, pellucid.check, pellucid.apps.teach.checks
assert pellucid.load("g2p-demo").generate(["attention"]) == ["ətˈɛnʧən"]
assert pellucid.load("topics-ko").model is not None
x = np.ones((2, 3), np.float32)
y, backward = pellucid.nn.Linear(3, 2).forward(x)
assert backward(np.ones_like(y)).shape == x.shape
from pellucid.core.dispatch import enabled
assert not enabled()
from pellucid.apps.cli.main import main
assert main(["models"]) == 1
"""


def test_layers_and_trained_models_need_numpy_alone() -> None:
    script = BLOCK.format(modules=ALL) + WORKS
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "bug" not in done.stderr
    assert "is not installed: " in done.stderr


def test_a_module_that_an_extra_has_is_named_with_it() -> None:
    message = describe(ModuleNotFoundError("No module named 'rich.table'", name="rich.table"))
    assert message.startswith("this needs rich, which is not installed: ")
    assert "This is a bug" in describe(ModuleNotFoundError("No module named 'zz'", name="zz"))


def test_of_an_extra_only_what_is_not_installed_is_named() -> None:
    command = install("export", "onnx")
    assert "onnx>=" in command
    assert "filelock" not in command
    assert "tyro" not in command
    assert "filelock" in install("train", "filelock")  # it is there, and cannot be imported


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    for extra, modules in EXTRAS.items():
        packages = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        assert all(module in packages for module in modules if module != "llvmlite")
