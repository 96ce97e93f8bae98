"""`make quick` chooses the tests of what changed, and ends in time."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import mirrored

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files of a small repository, and return the last."""
    monkeypatch.setattr(mirrored, "ROOT", tmp_path)
    monkeypatch.setattr(mirrored, "SOURCE", tmp_path / "src" / "pellucid")
    monkeypatch.setattr(mirrored, "TESTS", tmp_path / "tests")

    def wrote(*names: str, text: str = "") -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / names[-1]

    wrote("tests/test_imports.py", text="def test_floors(): pass\n")
    return wrote


def git(folder: Path, *words: str) -> None:
    named = ["-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


def test_what_changed_is_what_differs_from_main_and_what_git_does_not_know(
    write: Write, tmp_path: Path
) -> None:
    write("src/pellucid/kept.py", "src/pellucid/edited.py", "src/pellucid/both.py")
    git(tmp_path, "init", "--initial-branch", "main")
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "--message", "first")
    git(tmp_path, "switch", "--create", "own")
    write("src/pellucid/both.py", "src/pellucid/\u03b3 new.py", text="x = 1\n")
    git(tmp_path, "add", "src")
    git(tmp_path, "commit", "--message", "second")
    write("src/pellucid/edited.py", text="x = 2\n")
    names = {str(path.relative_to(tmp_path)) for path in mirrored.changed()}
    assert names == {
        "src/pellucid/both.py", "src/pellucid/edited.py", "src/pellucid/\u03b3 new.py",
        "tests/test_imports.py",
    }  # fmt: skip
    git(tmp_path, "branch", "--move", "main", "trunk")  # a clone may have no main
    names = {str(path.relative_to(tmp_path)) for path in mirrored.changed()}
    assert names == {"src/pellucid/edited.py", "tests/test_imports.py"}


def test_a_file_is_mirrored_by_its_own_tests_or_by_name(write: Write, tmp_path: Path) -> None:
    own = str(write("tests/ops/test_softmax.py"))
    assert mirrored.mirrored(write("src/pellucid/ops/softmax.py")) == [own]
    by_name = [str(tmp_path / "tests" / "ops"), "-k"]
    assert mirrored.mirrored(write("src/pellucid/ops/rules/window.py")) == [*by_name, "window"]
    assert mirrored.mirrored(write("src/pellucid/ops/rules/__init__.py")) == [*by_name, "rules"]
    assert mirrored.mirrored(write("src/pellucid/alone.py")) == []
    assert mirrored.mirrored(write("src/pellucid/ops/table.toml")) == []
    assert mirrored.mirrored(write("docs/softmax.py")) == []
    readme = str(write("tests/test_readme.py"))
    assert mirrored.mirrored(write("README.ko.md")) == [readme]
    assert mirrored.mirrored(write("scripts/readme.py")) == [readme]
    assert mirrored.mirrored(write("scripts/other.py", "Makefile")) == []


def test_a_changed_test_is_run_and_a_deleted_one_is_not(write: Write, tmp_path: Path) -> None:
    test = write("tests/ops/test_softmax.py")
    assert mirrored.mirrored(test) == [str(test)]
    assert mirrored.mirrored(write("tests/ops/compare.py")) == []
    test.unlink()
    assert mirrored.mirrored(test) == []


def test_each_call_of_pytest_is_made_once(write: Write, tmp_path: Path) -> None:
    test = write("tests/ops/test_softmax.py")
    files = [write(f"src/pellucid/ops/{n}.py") for n in ("softmax", "gelu", "softmax")]
    imports = str(tmp_path / "tests" / "test_imports.py")
    folder = str(tmp_path / "tests" / "ops")
    assert mirrored.commands([*files, test]) == [[imports, str(test)], [folder, "-k", "gelu"]]


def ran(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, codes: Callable[[list[str]], int]
) -> tuple[int, list[list[str]]]:
    calls: list[list[str]] = []

    def run(words: list[str], until: float) -> int:
        calls.append([word.removeprefix(f"{mirrored.TESTS}/") for word in words])
        return codes(calls[-1])

    monkeypatch.setattr(mirrored, "run", run)
    return mirrored.main([str(path) for path in files]), calls


def test_where_no_test_has_the_name_those_that_mention_it_run(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("tests/ops/test_a.py", text="from pellucid.ops import gelu\n")
    write("tests/ops/test_b.py", text="# gelu_tanh\n")
    named = [write("src/pellucid/ops/gelu.py")]
    code, calls = ran(named, monkeypatch, lambda words: mirrored.NO_TESTS if "-k" in words else 0)
    assert (code, calls[-1]) == (0, ["ops/test_a.py"])
    named = [write("src/pellucid/ops/silu.py")]
    code, calls = ran(named, monkeypatch, lambda words: mirrored.NO_TESTS if "-k" in words else 0)
    assert (code, Path(calls[-1][0]).name) == (0, "ops")


def test_a_failure_ends_it_with_1(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("tests/ops/test_a.py")
    named = [write("src/pellucid/ops/gelu.py")]
    code, calls = ran(named, monkeypatch, lambda words: 1)
    assert (code, len(calls)) == (1, 1)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_is_left_when_time_is_over_is_named(
    handler: signal.Handlers, write: Write, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also in the background of a shell, where SIGINT is ignored: it waited for the test's end."""
    slow = "import pathlib, time\ndef test_long(): time.sleep(60), pathlib.Path('slept').touch()\n"
    write("tests/test_imports.py", text=slow)
    write("tests/ops/test_gelu.py")
    page = write("src/pellucid/ops/gelu.py")
    before = signal.signal(signal.SIGINT, handler)
    try:
        assert mirrored.main([str(page)], seconds=0.0) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "slept").exists()
    out = capfd.readouterr().out
    assert "Not run to the end, or not at all:\n    tests/test_imports.py tests/ops/test_g" in out


def test_every_file_of_the_package_has_tests_that_run() -> None:
    """But the front page and `python -m pellucid`."""
    none = {path.name for path in mirrored.SOURCE.rglob("*.py") if not mirrored.mirrored(path)}
    assert none == {"__init__.py", "__main__.py"}
