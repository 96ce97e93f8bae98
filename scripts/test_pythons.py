"""Try Pellucid on other Pythons than this one, each in an environment of its own.

    python scripts/test_pythons.py python3.12 /opt/python3.13/bin/python …

Each gets an environment in build/pythons/ with the locked packages. There the derivatives and the
types are checked, a small model is trained and asked, and the tests run that another Python is most
likely to break. A Python that does not run is named and left out; so is this one's version, without
a word.

Then this Python gets the oldest versions that pyproject.toml allows, and runs the kernels' tests
too: Numba compiles all of them there. Exits with 1 if one failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "pythons"
LOCK = ROOT / "requirements" / "dev.txt"
TESTS = (
    "ops", "core", "nn", "data", "kernels/backend", "training/test_run.py",
    "apps/cli/test_options.py",
)  # fmt: skip
SAME = ("test_pool_model.py", "test_processors.py", "test_int8.py")
"""Tests whose results depend on LLVM and the processor, not on Python."""
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


class FailedError(Exception):
    """A command failed; the message has the command and the path of its output."""


def version(python: str) -> str | None:
    """Return a Python's version; None if it does not run."""
    try:
        done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def runs(name: str) -> tuple[str, str] | None:
    """Return the command and version of a Python, or None.

    It is searched on the path, and in pyenv's folder, whose commands on the path are of one version
    only.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    kept = sorted(pyenv.glob(f"{name.removeprefix('python')}.*/bin/python"))
    found = ((python, version(python)) for python in (name, *map(str, reversed(kept))))
    return next(((python, number) for python, number in found if number), None)


def environment(python: str, folder: Path) -> None:
    """Install the locked packages and this checkout, unless the folder has them already."""
    # An editable install knows this checkout by its path, which a copy has not.
    stamp, locked = folder / "made", f"{ROOT}\n{LOCK.read_text(encoding='utf-8')}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == locked:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(folder, python, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install")
    run(folder, *pip, "--require-hashes", "--no-deps", "--no-compile", "--requirement", LOCK)
    run(folder, *pip, "--no-deps", "--no-build-isolation", "--editable", ROOT)
    stamp.write_text(locked, encoding="utf-8")


def run(folder: Path, *command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command with its output in the folder's log; return the last line."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = folder / "log"
    with log.open("a", encoding="utf-8") as out:
        out.write(f"\n$ {' '.join(map(str, command))}\n")
        out.flush()
        done = subprocess.run(command, cwd=cwd, env=env, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode:
        raise FailedError(f"failed, see {log}: {' '.join(map(str, command))}")
    return log.read_text(encoding="utf-8").rstrip().splitlines()[-1]


def smoke(python: str, number: str) -> str:
    """Test one Python; return a line with its checks and tests."""
    folder = FOLDER / number.rpartition(".")[0]
    environment(python, folder)
    bin = folder / "bin"
    checks = run(folder, bin / "pellucid", "check", "--all")
    with tempfile.TemporaryDirectory() as empty:
        here = Path(empty)
        train = ("train", "chat-ko-small", "--training.steps", "30", "--run", "run")
        run(folder, bin / "pellucid", *train, cwd=here)
        run(folder, bin / "pellucid", "generate", "run", "안녕", cwd=here)
    run(folder, bin / "python", "-m", "mypy")  # another Python may have another NumPy
    left_out = (f"--deselect=tests/kernels/backend/{test}" for test in SAME)
    options = ("-n", "auto", "-m", "not alone and not wheel", "--quiet", *left_out)
    tests = run(folder, bin / "python", "-m", "pytest", *options, *(f"tests/{t}" for t in TESTS))
    return f"checks: {checks}; tests: {tests}"


def oldest_allowed() -> list[str]:
    """Return the oldest allowed version of each package that Pellucid and its tests need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = project["optional-dependencies"]
    extras = [one for extra in ("train", "cli", "test") for one in groups[extra]]
    wanted = map(Requirement, [*project["dependencies"], *extras])
    return [
        f"{one.name}=={bound.version}"
        for one in wanted
        if one.marker is None or one.marker.evaluate()
        for bound in one.specifier
        if bound.operator == ">="
    ]


def smoke_oldest() -> str:
    """Test the oldest allowed versions with this Python; return a line about it."""
    folder, wanted = FOLDER / "oldest", oldest_allowed()
    python, stamp = folder / "bin" / "python", folder / "made"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != f"{ROOT}\n{wanted}":
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        run(folder, sys.executable, "-m", "venv", folder)
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--no-compile")
        run(folder, *pip, *wanted, "hatchling")
        run(folder, *pip, "--no-deps", "--no-build-isolation", "--editable", ROOT)
        stamp.write_text(f"{ROOT}\n{wanted}", encoding="utf-8")
    checks = run(folder, folder / "bin" / "pellucid", "check", "--all")
    options = ("-n", "auto", "-m", "not alone and not wheel", "--quiet", "-p", "no:cacheprovider")
    left_out = (f"--deselect=tests/kernels/backend/{test}" for test in SAME)
    paths = (f"tests/{test}" for test in (*TESTS[:3], "kernels"))
    tests = run(folder, python, "-m", "pytest", *options, *left_out, *paths)
    return f"checks: {checks}; tests: {tests}"


def main(pythons: Sequence[str]) -> int:
    """Test each Python; return the exit code."""
    tried = {"{}.{}".format(*sys.version_info)}
    lines: list[str] = []
    results: list[bool] = []

    def attempt(title: str, trial: Callable[[], str]) -> None:
        began = time.monotonic()
        print(f"trying {title}", flush=True)
        try:
            said, passed = trial(), True
        except FailedError as error:
            said, passed = str(error), False
        results.append(passed)
        lines.append(f"{title}: {said}; {(time.monotonic() - began) / 60:.1f} minutes")

    for name in pythons:
        found = runs(name)
        if found is None:
            lines.append(f"{name}: left out, it does not run here")
        elif (minor := found[1].rpartition(".")[0]) not in tried:
            tried.add(minor)
            attempt(f"Python {found[1]} ({found[0]})", partial(smoke, *found))
    attempt("the oldest versions allowed", smoke_oldest)
    print("\n".join(lines))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
