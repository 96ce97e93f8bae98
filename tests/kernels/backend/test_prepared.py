"""The kernels that come with the package: they fit the code, and have the bits of its source."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pellucid.kernels.backend import prepared
from prepare_kernels import write
from processors import AMX, AVX2, BFLOAT16

ROOT = Path(__file__).parents[3]
NULL_PLACE = re.compile(r"^.*\bgetelementptr\b[^\n]*\bptr null\b.*$", re.MULTILINE)
RUN = """
import hashlib, sys
import wide_vectors
from prepare_kernels import use_kernels
from pellucid.kernels.backend import prepared

find, used = prepared.text, []
def text(name, digest):
    used.append(name)
    if sys.argv[1] == "source":
        return None
    found = find(name, digest)
    if found is None:
        sys.exit(f"not prepared: {name}")
    return found
prepared.text = text
print(hashlib.sha256(b"".join(use_kernels())).hexdigest())
print(*used)
"""


def run(how: str, folder: Path, environment: dict[str, str]) -> tuple[str, list[str]]:
    """Use the kernels with an empty cache; return a digest of results, and the kernels' names.

    The test is skipped at the first kernel that was edited since it was prepared.
    """
    path = os.pathsep.join([str(ROOT / "scripts"), *filter(None, sys.path)])
    own = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / how), "PELLUCID_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, how], env=os.environ | own | environment,
        capture_output=True, text=True,
    )  # fmt: skip
    if (stale := re.search(r"^not prepared: .*", done.stderr, re.MULTILINE)) is not None:
        pytest.skip(f"{stale[0]}; python scripts/prepare_kernels.py makes it, as does make wheel")
    assert done.returncode == 0, done.stderr
    digest, used = done.stdout.splitlines()
    return digest, used.split()


@pytest.mark.wheel
@pytest.mark.skipif(not prepared.entries(), reason="no prepared kernels for this system")
@pytest.mark.parametrize("environment", [BFLOAT16, AMX, AVX2], ids=["AVX-512", "AMX", "AVX2"])
def test_every_prepared_kernel_has_the_bits_of_its_source(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The code may be newer than the files: then it says so, and is skipped."""
    digest, used = run("prepared", tmp_path, environment)
    assert ("pellucid.kernels.backend.amx.product" in used) == (environment is AMX)
    if environment is BFLOAT16:
        assert run("source", tmp_path, environment)[0] == digest


def test_no_address_is_an_offset_from_a_null_pointer() -> None:
    """LLVM may rewrite addresses that were integers so, and then miscompile (numba #10695)."""
    assert NULL_PLACE.search("  %at = getelementptr inbounds float, ptr null, i64 %i\n")
    for path in sorted(prepared.FOLDER.glob("*.json.xz")):
        kernels = json.loads(lzma.decompress(path.read_bytes()))["kernels"]
        assert kernels
        found = {name: NULL_PLACE.findall(text) for name, (_, text) in kernels.items()}
        assert {name: places for name, places in found.items() if places} == {}, path.name


def test_only_entries_for_these_instructions_multiply_in_int8() -> None:
    """A kernel without int8 in its name would be loaded on processors without VNNI too."""
    texts = {name: text for name, (_, text) in prepared.entries().items()}
    multiply = {name for name, text in texts.items() if "vpdpbusd" in text or "pmadd" in text}
    assert all(name.endswith((" with vnni", " with pairs")) for name in multiply)
    assert bool(multiply) == bool(texts)
    rounds = {name for name, text in texts.items() if "bf16" in text}
    tiles = {"pellucid.kernels.backend.amx.product"}
    assert all("bfloat16" in name or "_of_words" in name for name in rounds - tiles)
    assert {name for name, text in texts.items() if "llvm.x86.tile" in text} <= tiles


def test_a_text_names_nothing_of_python_and_no_place_of_this_machine() -> None:
    """It is the same for every Python: of objects, pickles and paths there is nothing in it."""
    known = {"sched_yield", "clock_gettime", "syscall", "sqrtf", "tanhf", "memset", "memcpy"}
    ours = {"NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor"}
    for _, text in prepared.entries().values():
        called = re.findall(r'^declare .*?@"?([\w.]+)"?\(', text, re.MULTILINE)
        named = {name for name in called if not name.startswith(("llvm.", "pellucid."))}
        assert named <= known | ours
        assert not re.search(r'c"|/|inttoptr \(', text)


def test_nothing_is_used_that_was_made_of_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "entries", lambda: {"toy.run": ("a digest", "a text")})
    assert prepared.text("toy.run", "a digest") == "a text"
    assert prepared.text("toy.run", "another digest") is None
    assert prepared.text("toy.walk", "a digest") is None


def test_a_file_is_read_back_unless_versions_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(prepared, "FOLDER", tmp_path / "prepared")
    read = prepared.entries.__wrapped__
    assert read() == {}
    entries = {"toy.run": ("a digest", "text")}
    write(entries)
    assert read() == entries
    whole = prepared.path().read_bytes()
    middle = len(whole) // 2
    wrong_bit = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:-9], b"", bytes(len(whole)), wrong_bit, whole[::-1]):
        prepared.path().write_bytes(damaged)
        assert read() == {}
    prepared.path().write_bytes(whole)
    assert prepared.lacking() is None
    monkeypatch.setattr(prepared, "VERSION", "0.1")
    assert read() == {}
    assert str(prepared.lacking()).endswith("and this is 0.1")
    monkeypatch.setattr(prepared, "FOLDER", tmp_path / "none")
    assert prepared.lacking() == "there are no prepared ones for this system"
