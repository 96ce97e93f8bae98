"""A cached kernel is out of date when code that it is made of changed, and only then."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from pellucid.kernels import bias_act_dropout  # noqa: F401  (read below)
from pellucid.kernels.backend import cache

FILES = {
    "toy_step": """
from pellucid.kernels.backend.compile import inner

@inner()
def step(x):
    return x + 1.0

@inner(signature="f8[::1]")
def half(x):
    x[0] /= 2.0
""",
    "toy_user": """
from toy_step import step
from pellucid.kernels.backend.compile import kernel

@kernel("f8[::1]")
def run(x):
    x[0] = 2.0 * step(x[0])
""",
    "toy_closure": """
import toy_step as module
from pellucid.kernels.backend.compile import kernel

def _make(step):
    def run(x):
        x[0] = 3.0 * step(x[0])
    return kernel("f8[::1]")(run)

run = _make(module.step)
""",
    "toy_symbol": """
from toy_step import half
from pellucid.kernels.backend.compile import kernel

@kernel("f8[::1]")
def run(x):
    x[0] += 1.0
    half(x)
""",
    "notes": """
changed = False
""",
    "toy_other": """
import notes
from pellucid.kernels.backend.compile import kernel

@kernel("f8[::1]")
def run(x):
    x[0] *= 5.0
""",
}

RUN = """
import numpy as np
from pellucid.kernels.backend import cache
from pellucid.kernels.backend.compile import Kernel
cache._PACKAGES = ("toy_",)
compiled, compile = [], Kernel._compile
def reported(kernel, digest):
    compiled.append(kernel.name.split(".")[0])
    return compile(kernel, digest)
Kernel._compile = reported
import toy_closure, toy_other, toy_symbol, toy_user
x = np.full((4, 1), 7.0)
for toy, own in zip((toy_user, toy_closure, toy_other, toy_symbol), x):
    toy.run(own)
print(*x[:, 0])
print(*sorted(compiled))
"""


class Toys:
    """Small modules in a folder, and what a new process makes of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in FILES.items():
            (folder / f"{name}.py").write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / f"{name}.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, then: str = "") -> tuple[list[float], list[str]]:
        """Return the kernels' results, and the modules whose kernel was compiled."""
        path = os.pathsep.join([str(self.folder), *filter(None, sys.path)])
        own = {
            "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(self.folder / "cache"),
            # Python takes a module that was edited in the same second for the one that it compiled.
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", RUN + then], env=os.environ | own,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        values, names = done.stdout.splitlines()
        return [float(value) for value in values.split()], names.split()


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    toys = Toys(tmp_path)
    names = ["toy_closure", "toy_other", "toy_step", "toy_symbol", "toy_user"]
    assert toys.run() == ([16.0, 24.0, 35.0, 4.0], names)
    return toys


def test_a_process_that_finds_its_kernels_does_without_numba(toys: Toys) -> None:
    """Its import takes longer than a short answer."""
    without = "import sys\nassert 'numba' not in sys.modules"
    assert toys.run(without) == ([16.0, 24.0, 35.0, 4.0], [])


def test_no_kernel_imports_numba() -> None:
    program = """
import importlib, pkgutil, sys
import pellucid.compiled, pellucid.kernels
for package in (pellucid.compiled, pellucid.kernels):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".torch" not in module.name and not module.name.endswith(".numba_text"):
            importlib.import_module(module.name)
assert 'numba' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], env=os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, check=True)  # fmt: skip


def test_comments_docstrings_and_line_numbers_recompile_nothing(toys: Toys) -> None:
    for name in FILES:
        path = toys.folder / f"{name}.py"
        path.write_text(f'"""A module."""\n\n# A comment.\n{path.read_text()}')
    toys.edit("toy_step", "    return x", '    """Return x + 1."""\n    return x')
    assert toys.run() == ([16.0, 24.0, 35.0, 4.0], [])


def test_an_edit_recompiles_what_imports_it_and_nothing_else(toys: Toys) -> None:
    toys.edit("toy_step", "x + 1.0", "x + 2.0")
    names = ["toy_closure", "toy_step", "toy_symbol", "toy_user"]
    assert toys.run() == ([18.0, 27.0, 35.0, 4.0], names)
    toys.edit("toy_step", "/= 2.0", "/= 4.0")
    assert toys.run()[0] == [18.0, 27.0, 35.0, 2.0]


def test_an_update_that_touches_no_kernel_recompiles_nothing(toys: Toys) -> None:
    """Installed again: every file is new and later, and a module that is no kernel's changed.

    A caller from the cache finds the function that it calls by symbol.
    """
    for name, text in FILES.items():
        path = toys.folder / f"{name}.py"
        path.unlink()
        path.write_text(text)
        os.utime(path, (2e9, 2e9))
    toys.edit("notes", "False", "True")
    assert toys.run() == ([16.0, 24.0, 35.0, 4.0], [])


def test_activations_of_one_kernel_are_apart() -> None:
    """An edit of one activation must not recompile the others."""
    from pellucid.kernels.activations import gelu, relu  # noqa: F401  (read below)

    gelu_reads, relu_reads = (
        cache._read(f"pellucid.kernels.activations.{name}")[1] for name in ("gelu", "relu")
    )
    assert "pellucid.kernels.backend.math" in gelu_reads
    assert "pellucid.kernels.backend.math" not in relu_reads
    common = cache._read("pellucid.kernels.bias_act_dropout")[1]
    assert not [name for name in common if "activations" in name]


def flipped(data: bytes, at: int) -> bytes:
    """Return data with one wrong bit."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give a cache of its own to the test."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    cache.folder.cache_clear()
    yield tmp_path
    cache.folder.cache_clear()


@pytest.mark.parametrize(
    "damaged",
    [
        lambda data: b"",
        lambda data: data[:31],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: bytes(len(data)),
        lambda data: np.random.default_rng(0).bytes(len(data)),
        lambda data: flipped(data, 3),
        lambda data: flipped(data, 400),
    ],
    ids=["empty", "a part of the digest", "truncated", "longer", "zeroed", "random",
         "bit of the digest", "bit of the kernel"],
)  # fmt: skip
def test_a_damaged_file_holds_nothing_until_it_is_written_again(
    damaged: Callable[[bytes], bytes], in_a_folder: Path
) -> None:
    """After a power failure, or in a copied environment."""
    entry, kept = cache.Entry("pellucid.kernels.toy.run", "a digest"), (["one", "two"], bytes(999))
    entry.save(*kept)
    (file,) = in_a_folder.iterdir()
    file.write_bytes(damaged(file.read_bytes()))
    assert entry.load() is None
    entry.save(*kept)
    assert entry.load() == kept
    assert [*in_a_folder.iterdir()] == [file]


def test_a_device_in_the_place_of_a_file_is_not_read(in_a_folder: Path) -> None:
    """/dev/zero would be read until there is no memory."""
    entry, kept = cache.Entry("pellucid.kernels.toy.run", "a digest"), (["one"], b"code")
    entry.save(*kept)
    (file,) = in_a_folder.iterdir()
    file.unlink()
    file.symlink_to("/dev/zero")
    assert entry.load() is None
    entry.save(*kept)
    assert entry.load() == kept


def test_damaged_kernels_are_compiled_and_written_again(toys: Toys) -> None:
    """Numba would run machine code with a wrong bit. One of them is called by symbol."""
    folder = toys.folder / "cache"
    files = sorted(folder.rglob("*"))
    assert len(files) == 6  # and what the sources are
    for file in files:
        data = file.read_bytes()
        file.write_bytes(flipped(data, len(data) // 2))
    names = ["toy_closure", "toy_other", "toy_step", "toy_symbol", "toy_user"]
    assert toys.run() == ([16.0, 24.0, 35.0, 4.0], names)
    assert toys.run() == ([16.0, 24.0, 35.0, 4.0], [])
    assert sorted(folder.rglob("*")) == files


def test_a_file_is_for_one_system_one_processor_one_llvm_and_one_code(
    in_a_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, version = cache.Entry("toy.run", "a digest"), cache.TARGET[0]
    entry.save([], b"code")
    assert entry.load() == ([], b"code")
    assert entry._replace(name="toy.walk").load() is None
    assert entry._replace(digest="another digest").load() is None
    _, system, *processor = cache.TARGET
    for other in ((system, "another processor", ""), ("another system", *processor)):
        monkeypatch.setattr(cache, "TARGET", (version, *other))
        assert entry.load() is None
    monkeypatch.setattr(cache, "TARGET", ("0.1", system, *processor))
    assert entry.load() is None


def test_without_a_folder_nothing_is_kept_and_one_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A read-only install and no home."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "a file" / "folder"))
    (tmp_path / "a file").touch()
    cache.folder.cache_clear()
    for name in ("toy.run", "toy.walk"):
        cache.Entry(name, "a digest").save([], b"code")
        assert cache.Entry(name, "a digest").load() is None
    cache.folder.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "NUMBA_CACHE_DIR" in caplog.text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no password file")
def test_a_user_without_a_home_is_as_one_whose_home_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A container that runs as a number, with a read-only install."""

    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache.folder.__wrapped__() == Path(cache.__file__).parents[1] / "__pycache__"
    assert not caplog.records
    (tmp_path / "a file").touch()
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "a file" / "backend" / "cache.py"))
    assert cache.folder.__wrapped__() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "LOCALAPPDATA"])
def test_the_users_folder_has_the_cache_where_the_packages_cannot_be_written(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """LOCALAPPDATA is Windows's."""
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "users"))
    (tmp_path / "a file").touch()
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "a file" / "backend" / "cache.py"))
    assert cache.folder.__wrapped__() == tmp_path / "users" / "pellucid"


def test_a_digest_is_of_code_alone_and_the_same_in_every_python() -> None:
    """Written down once: 3.12 and 3.13 have fields in their trees of code that 3.11 has not."""
    tree = ast.parse("@f\ndef g(x, *, y=1):\n    return [x, f'{y}']")
    digest = hashlib.sha256(repr(cache._outline(tree)).encode()).hexdigest()
    assert digest.startswith("ee37ed19d3dd")
