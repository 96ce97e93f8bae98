"""Parts of a user's own: from a file, from the environment, from an installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.core.errors import UsageError
from pellucid.core.parts import VARIABLE, Registry, read, use
from pellucid.core.settings import from_mapping
from pellucid.ops.activations import ACTIVATIONS
from pellucid.system.command import command
from pellucid.training.config import RunConfig

PART = """
from pellucid.core.vjp import Pair
from pellucid.ops.activations import ACTIVATIONS, Activation
ACTIVATIONS["{name}"] = Activation("{name}", Pair(lambda x: (x * x, x), lambda dy, x: 2.0 * x * dy))
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


def test_a_file_registers_a_part_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PART.format(name="square"), encoding="utf-8")
    use(str(file))
    try:
        found = ACTIVATIONS.find("square", "activation_function")
        use(str(file))
        assert ACTIVATIONS["square"] is found
        assert os.environ[VARIABLE] == str(file)
    finally:
        del ACTIVATIONS["square"]


def test_a_file_may_import_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("WIDTH = 17\n", encoding="utf-8")
    file = tmp_path / "imports_it.py"
    file.write_text("from beside_it import WIDTH\n", encoding="utf-8")
    read(str(file))
    assert sys.modules["pellucid_part_imports_it"].WIDTH == 17


def test_an_unknown_name_says_what_there_is_and_how_to_add_one() -> None:
    with pytest.raises(
        UsageError, match=r"'rel' is not known \(did you mean relu\?\).*`import` FILE"
    ):
        ACTIVATIONS.find("rel", "activation_function")


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1\nx.y\n", r"bad.py, line 2: AttributeError"), ("x = (\n", "bad.py: SyntaxError"),
     (None, "bad.py: FileNotFoundError")],
)  # fmt: skip
def test_a_file_that_fails_is_named_with_its_line(
    text: str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        use(str(file))


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "ask", ["ACTIVATIONS['square']", "ACTIVATIONS.get('square')", "ACTIVATIONS.find('square', '')"]
)
def test_a_process_started_later_reads_them_however_it_asks(ask: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PART.format(name="square"), encoding="utf-8")
    look = f"from pellucid.ops.activations import ACTIVATIONS; print({ask}.name)"
    assert run(look, **{VARIABLE: str(file)}).strip() == "square"


def test_an_installed_package_has_parts(tmp_path: Path) -> None:
    """As pip leaves it: the module, and its entry point in the metadata."""
    (tmp_path / "outside.py").write_text(PART.format(name="square"), encoding="utf-8")
    metadata = tmp_path / "outside-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pellucid.parts]\noutside = outside\n")
    look = (
        "from pellucid.ops.activations import ACTIVATIONS;"
        "assert 'square' not in list(ACTIVATIONS);"
        "print(ACTIVATIONS['square'].name)"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert run(look, PYTHONPATH=path).strip() == "square"


def test_a_list_is_the_name_of_no_part() -> None:
    with pytest.raises(UsageError, match=r"evaluation\.metric: expected one of .*, got \['bleu'\]"):
        from_mapping(RunConfig, {"evaluation": {"metric": ["bleu"]}}, "my.toml", RunConfig())
    with pytest.raises(UsageError, match=r"model\.model_type: no \{'a': 1\}; expected one of"):
        from_mapping(RunConfig, {"model": {"model_type": {"a": 1}}}, "my.toml", RunConfig())


def test_every_registry_is_one_that_reads_the_users_parts() -> None:
    from pellucid.data.corpora import CORPORA
    from pellucid.models.positions import POSITIONS
    from pellucid.ops.norms import NORMS
    from pellucid.ops.rules.function import FUNCTIONS
    from pellucid.optim import OPTIMIZERS
    from pellucid.optim.schedules import SCHEDULES
    from pellucid.tasks import TASKS
    from pellucid.tasks.metrics import METRICS

    every = (
        ACTIVATIONS,
        CORPORA,
        FUNCTIONS,
        METRICS,
        NORMS,
        OPTIMIZERS,
        POSITIONS,
        SCHEDULES,
        TASKS,
    )
    assert all(isinstance(each, Registry) for each in (*every, SCHEDULES, TASKS))


def test_a_command_to_copy_names_the_imports_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    use("mine.py")
    use("json")
    assert command("view", "a b") == "pellucid view 'a b' --import mine.py --import json"


def test_a_setting_with_an_unknown_name_says_how_to_add_a_part() -> None:
    with pytest.raises(UsageError, match=r"got 'mine'.*; `import` FILE reads a Python file"):
        from_mapping(RunConfig, {"evaluation": {"metric": "mine"}}, "my.toml", RunConfig())
