"""The house has floors, and a lower floor never imports a higher one."""

import ast
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pellucid"

# Three rings, and inside each its floors from the ground up.
RINGS = {
    "core": ("core", "ops", "nn", "models", "generation", "optim", "check"),
    "kernels": ("kernels", "compiled"),
    "the rest": ("system", "data", "interop", "tasks", "training", "apps", "__main__"),
}
FLOORS = tuple(floor for floors in RINGS.values() for floor in floors)
HEIGHT = {name: height for height, name in enumerate(FLOORS)}

MOST_LINES = {"core": 8_000, "all": 31_000}
"""Lines of code that a ring, or all of them, may have: the core is read in a weekend."""
REQUIRED = {"numpy", "array_api_compat"}
"""Packages that the core needs."""

# The package's own front page gathers public names, of the library alone; importing it must stay
# light, which test_importing_is_light proves.
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


def test_the_front_page_imports_no_app() -> None:
    assert "apps" not in imported(SOURCE / "__init__.py")


def messages(path: Path) -> list[str]:
    """The texts in a file that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    ]


def test_no_message_of_the_library_names_an_option() -> None:
    """`command` writes options; `launch` reads those of its own process, and pip has its own."""
    options = {"system/command.py", "training/launch.py", "data/corpora/sources.py"}
    found = {
        str(path.relative_to(SOURCE)): texts
        for path in modules()
        if path.relative_to(SOURCE).parts[:2] != ("apps", "cli")
        and str(path.relative_to(SOURCE)) not in options
        and (texts := [text for text in messages(path) if re.search("(^|[ (`])--[a-z]", text)])
    }
    assert not found


def lines_of_code(path: Path) -> int:
    """Lines with code: no blank ones, comments or docstrings, as tinygrad counts its own."""
    code = (tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
    with tokenize.open(path) as file:
        found = [
            (token.start[0], token.end[0])
            for token in tokenize.generate_tokens(file.readline)
            if token.type in code
            and not (token.string.startswith('"""') and token.line.lstrip().startswith('"""'))
        ]
    return len({line for first, last in found for line in range(first, last + 1)})


@pytest.mark.parametrize("ring", MOST_LINES)
def test_a_ring_keeps_within_its_lines(ring: str) -> None:
    paths = [path for path in modules() if ring == "all" or floor_of(path) in RINGS[ring]]
    assert sum(map(lines_of_code, paths)) <= MOST_LINES[ring]


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings(tmp_path: Path) -> None:
    page = tmp_path / "page.py"
    page.write_text(
        '"""A page.\n\nOf two lines."""\n\n# why\nx = (\n    1,  # one\n)\ny = """\ntext\n"""\n',
        encoding="utf-8",
    )
    assert lines_of_code(page) == 6


TRAINED = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in {required} | set(sys.stdlib_module_names) | {"pellucid"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from pellucid.check import cases, run_checks
from pellucid.core.batch import Batch, Packed
from pellucid.core.dispatch import AVAILABLE
from pellucid.generation import SearchConfig, search
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim.config import StepConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step

assert not AVAILABLE
assert all(result.passed for result in run_checks(c for c in cases() if "norm" in c.name))
sizes = dict(d_model=6, num_attention_heads=2, ffn_dim=7, source_vocab_size=11)
model = Seq2Seq(Seq2SeqConfig(**sizes, target_vocab_size=11, dropout=0.0), seed=1)
optimizer = ModelOptimizer(model.named_parameters())
batch = Batch(Packed.of([[5, 6, 7], [8, 9]]), Packed.of([[1, 8, 9, 2], [1, 10, 2]]))
losses = [
    train_step(model, optimizer, batch, StepConfig(), step=step, lr=0.02)[0].loss
    for step in range(1, 61)
]
assert losses[-1] < 0.1 < losses[0], losses
found = search(model.eval(), batch.source, SearchConfig(max_length=5))
print([answers[0].tokens for answers in found])
"""


def test_the_core_learns_generates_and_checks_alone(tmp_path: Path) -> None:
    for floor in RINGS["core"]:
        shutil.copytree(SOURCE / floor, tmp_path / "pellucid" / floor)
    shutil.copy(SOURCE / "__init__.py", tmp_path / "pellucid")
    done = subprocess.run(
        [sys.executable, "-c", TRAINED.replace("{required}", repr(REQUIRED))],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stderr, done.stdout) == ("", "[(8, 9), (10,)]\n")


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
