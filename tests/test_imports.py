"""The house has floors, and a lower floor never imports a higher one."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pellucid"

# From the ground up, one package on each floor.
FLOORS = (
    "core",
    "ops",
    "kernels",
    "nn",
    "models",
    "data",
    "compiled",
    "generation",
    "interop",
    "tasks",
    "training",
    "check",
    "apps",
    "__main__",
)
HEIGHT = {name: height for height, name in enumerate(FLOORS)}

# The package's own front page gathers public names; importing it must stay light, which
# test_importing_is_light proves.
FRONT_PAGE = "__init__"


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def floor_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Floors that a file imports, anywhere in it: at its top, in a function, or for types only."""
    package = ["pellucid", *path.relative_to(SOURCE).parent.parts]
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names.update(f"{base}.{alias.name}" for alias in node.names)
    parts = [name.split(".") for name in names]
    return {p[1] for p in parts if p[0] == "pellucid" and len(p) > 1 and p[1] in HEIGHT}


def climbs(path: Path) -> list[str]:
    """The higher floors that a file reaches for."""
    own = floor_of(path)
    return sorted(name for name in imported(path) if HEIGHT[name] > HEIGHT[own])


def test_every_file_stands_on_a_floor() -> None:
    unknown = {floor_of(path) for path in modules()} - set(HEIGHT) - {FRONT_PAGE}
    assert not unknown, f"give these a floor in FLOORS: {sorted(unknown)}"


def test_no_floor_imports_a_higher_one() -> None:
    faults = {
        str(path.relative_to(SOURCE)): above
        for path in modules()
        if floor_of(path) != FRONT_PAGE and (above := climbs(path))
    }
    assert not faults


@pytest.mark.parametrize(
    "statement",
    [
        "import pellucid.nn",
        "from pellucid import nn",
        "from pellucid.nn import Linear",
        "from ..nn import Linear",
        "from .. import nn",
        "def f():\n    from pellucid.nn.linear import Linear",
    ],
)
def test_the_check_sees_every_way_to_import(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops").mkdir()
    page = tmp_path / "ops" / "page.py"
    page.write_text(statement, encoding="utf-8")
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    assert climbs(page) == ["nn"]


def test_importing_is_light() -> None:
    heavy = (
        "{'numba', 'torch', 'jax', 'tokenizers', 'rich', 'tyro', 'scipy', 'matplotlib', 'pooch'}"
    )
    script = f"import sys, pellucid, pellucid.kernels; print(sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.strip() == "[]"
