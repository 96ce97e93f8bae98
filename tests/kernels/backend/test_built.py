"""Which library of kernels a processor gets, and that a clone has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pellucid.kernels.backend import built

AVX2 = {"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
BFLOAT16 = AVX512 | {"avx512_vnni", "avx512_bf16", "gfni"}


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are for Linux")
def test_the_highest_level_that_the_processor_has_and_a_library_is_there_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    monkeypatch.setattr(built.platform, "machine", lambda: "x86_64")
    chosen = built.level.__wrapped__
    monkeypatch.setattr(built, "_flags", lambda: BFLOAT16)
    assert chosen() is None
    monkeypatch.setattr(built, "FOLDER", tmp_path)
    for name in ("avx2", "avx512", "amx"):
        (tmp_path / f"x86_64-linux-{name}.so").touch()
    assert chosen() == "x86_64-linux-avx512"  # its own has no library, that of tiles asks for more
    (tmp_path / "x86_64-linux-bfloat16.so").touch()
    assert chosen() == "x86_64-linux-bfloat16"
    for flags, level in (
        (BFLOAT16 | {"amx_tile", "amx_bf16"}, "amx"), (AVX512, "avx512"), (AVX2, "avx2"),
        (AVX512 | {"avx512_vnni"}, "avx512"), (AVX2 | {"avx_vnni"}, "avx2"),
        (AVX2 - {"fma"}, None), (set(), None),
    ):  # fmt: skip
        monkeypatch.setattr(built, "_flags", lambda flags=flags: flags)
        assert chosen() == (level and f"x86_64-linux-{level}")
    monkeypatch.setattr(built.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(built, "_flags", lambda: {"fp", "asimd", "evtstrm"})
    assert chosen() is None
    (tmp_path / "aarch64-linux-neon.so").touch()
    assert chosen() == "aarch64-linux-neon"
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")  # it is to be compiled
    monkeypatch.setattr(built, "_flags", lambda: BFLOAT16)
    assert chosen() is None
