"""Wheels with kernels: what they have that the wheel for all systems has not, and the reverse."""

from __future__ import annotations

import zipfile
from base64 import urlsafe_b64decode
from hashlib import sha256
from pathlib import Path

import pytest

import build_kernels
import kernels_elsewhere
from pellucid.kernels.backend import built

METADATA = """\
Name: pellucid
Requires-Dist: numba<0.69,>=0.62; python_version < '3.15' and platform_machine == 'x86_64'
Requires-Dist: numpy>=2.1
Requires-Dist: numba<0.69,>=0.62; extra == 'kernels'
"""
FILES = {
    "pellucid/__init__.py": "",
    "pellucid/kernels/prepared/x86_64-unknown-linux-gnu-8.json.xz": "a text",
    "pellucid-0.2.0.dist-info/METADATA": METADATA,
    "pellucid-0.2.0.dist-info/WHEEL": "Root-Is-Purelib: true\nTag: py3-none-any\n",
    "pellucid-0.2.0.dist-info/RECORD": "",
}


def test_a_wheel_for_a_system_has_its_libraries_and_requires_no_numba(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(build_kernels, "OUT", tmp_path)
    wheel = tmp_path / "pellucid-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name, text in FILES.items():
            file.writestr(name, text)
    for name in (
        "x86_64-linux-avx2.so",
        "wasm32.wasm",
        "other-linux-neon.so",
        "other-linux-neon.server",
    ):
        (tmp_path / name).write_bytes(name.encode())
    monkeypatch.setitem(build_kernels.PLATFORMS, "other-linux", "manylinux2014_other")
    build_kernels.wheels(wheel)
    for system, library in (("x86_64", "x86_64-linux-avx2"), ("other", "other-linux-neon")):
        made = tmp_path / f"pellucid-0.2.0-py3-none-manylinux2014_{system}.whl"
        with zipfile.ZipFile(made) as file:
            files = {name: file.read(name) for name in file.namelist()}
        assert [name for name in files if "/kernels/" in name] == [
            f"pellucid/kernels/built/{library}.so"
        ]
        metadata = METADATA.splitlines(keepends=True)
        assert files["pellucid-0.2.0.dist-info/METADATA"].decode() == "".join(
            line for i, line in enumerate(metadata) if i != 1
        )
        assert files["pellucid-0.2.0.dist-info/WHEEL"].decode() == (
            f"Root-Is-Purelib: false\nTag: py3-none-manylinux2014_{system}\n"
        )
        *lines, own = files.pop("pellucid-0.2.0.dist-info/RECORD").decode().splitlines()
        assert own == "pellucid-0.2.0.dist-info/RECORD,,"
        for line, (name, data) in zip(lines, files.items(), strict=True):
            digest = urlsafe_b64decode(f"{line.split('=')[1].split(',')[0]}=")
            assert (line.split(",")[0], digest) == (name, sha256(data).digest())


def test_every_library_that_a_processor_may_get_is_a_target() -> None:
    """And may use what the target is compiled with, no more."""
    targets = build_kernels.TARGETS
    assert set(built.LEVELS) == set(targets) - {"wasm32"}
    for name, wanted in built.LEVELS.items():
        assert wanted <= set(targets[name].features.split(","))


def test_each_system_has_a_wheel_of_the_glibc_that_its_libraries_are_linked_for() -> None:
    for name in built.LEVELS:
        system = name.rpartition("-")[0]
        machine = system.removesuffix("-linux")
        assert build_kernels.PLATFORMS[system] == f"manylinux2014_{machine}"
        assert build_kernels.TARGETS[name].zig == f"{machine}-linux-gnu.2.17"


def test_the_tests_of_built_kernels_are_there() -> None:
    for test in kernels_elsewhere.TESTS:
        assert (build_kernels.ROOT / test).exists(), test
