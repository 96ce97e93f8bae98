"""The kernels that come with the package: they fit the code, and have the bits of its source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.kernels.backend import prepared
from pellucid.kernels.backend.simd import FEATURES
from processors import AVX2

ROOT = Path(__file__).parents[3]
RUN = """
import hashlib, sys
from prepare_kernels import use_kernels
from pellucid.kernels.backend import prepared

find, missing = prepared.load, []
if sys.argv[1] == "source":
    prepared.load = lambda *key: None
else:
    def load(name, digest, context):
        found = find(name, digest, context)
        if found is None:
            missing.append(name)
        return found
    prepared.load = load
print(hashlib.sha256(b"".join(use_kernels())).hexdigest())
print(*missing)
"""


def run(how: str, folder: Path, environment: dict[str, str]) -> tuple[str, list[str]]:
    """Use the kernels with an empty cache; return a digest of results, and which are missing."""
    path = os.pathsep.join([str(ROOT / "scripts"), *filter(None, sys.path)])
    own = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / how), "PELLUCID_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, how], env=os.environ | own | environment,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    digest, names = done.stdout.splitlines()
    return digest, names.split()


@pytest.mark.skipif(not prepared.entries(), reason="no prepared kernels for this system")
@pytest.mark.parametrize("environment", [{}, AVX2], ids=["this processor", "AVX2"])
def test_every_kernel_is_prepared_and_has_the_bits_of_its_source(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """If it fails after an edit of a kernel: python scripts/prepare_kernels.py."""
    if environment and "+avx2" not in FEATURES:
        pytest.skip("this processor does not have AVX2")
    digest, missing = run("prepared", tmp_path, environment)
    assert missing == []
    if not environment:
        assert run("source", tmp_path, environment)[0] == digest


def test_only_entries_for_these_instructions_multiply_in_int8() -> None:
    """A kernel without int8 in its name would be loaded on processors without VNNI too."""
    texts = {name: entry.text for name, entry in prepared.entries().items()}
    multiply = {name for name, text in texts.items() if "vpdpbusd" in text or "pmadd" in text}
    assert all(name.endswith((" with vnni", " with pairs")) for name in multiply)
    assert bool(multiply) == bool(texts)


def test_nothing_is_used_that_was_made_of_other_code_or_with_other_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = prepared.Entry("a digest", "not LLVM's language", b"")
    monkeypatch.setattr(prepared, "entries", lambda: {"toy.run": entry})
    assert prepared.load("toy.run", "another digest", None) is None
    assert prepared.load("toy.walk", "a digest", None) is None


def test_a_file_is_read_back_unless_versions_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prepared, "FOLDER", tmp_path / "prepared")
    read = prepared.entries.__wrapped__
    assert read() == {}
    entries = {"toy.run": prepared.Entry("a digest", "text", b"described")}
    prepared.write(entries)
    assert read() == entries
    whole = prepared.path().read_bytes()
    middle = len(whole) // 2
    wrong_bit = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:-9], b"", bytes(len(whole)), wrong_bit, whole[::-1]):
        prepared.path().write_bytes(damaged)
        assert read() == {}
    prepared.path().write_bytes(whole)
    monkeypatch.setattr(prepared, "versions", lambda: {"llvmlite": "0.1", "numba": "0.1"})
    assert read() == {}
