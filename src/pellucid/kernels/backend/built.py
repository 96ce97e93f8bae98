"""Load kernels that were compiled when the package was built, from a shared library.

A wheel for a platform contains a library for each level of processor features
(`scripts/build_kernels.py`); a clone has none. With a library, a process needs no Numba, no LLVM
and no folder for machine code. It compiles only, if Numba is installed, attention for a user's own
functions of scores, or for a rule whose steps are not in the usual order.
"""

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "built"
_AVX2 = {"+avx2", "+fma", "+bmi", "+bmi2", "+f16c", "+lzcnt", "+movbe"}
_AVX512 = _AVX2 | {f"+avx512{name}" for name in ("f", "bw", "cd", "dq", "vl")}
_VNNI = _AVX512 | {"+avx512vnni"}
_BFLOAT16 = _VNNI | {"+avx512bf16", "+gfni"}
LEVELS = {
    "x86_64-linux-amx": _BFLOAT16 | {"+amx-tile", "+amx-bf16"},
    "x86_64-linux-bfloat16": _BFLOAT16,
    "x86_64-linux-vnni": _VNNI,
    "x86_64-linux-avx512": _AVX512,
    "x86_64-linux-avxvnni": _AVX2 | {"+avxvnni"},
    "x86_64-linux-avx2": _AVX2,
    "aarch64-linux-neon": {"+neon"},
}
"""For each library, the highest first: the processor's features that it needs, in LLVM's names."""
_LINUX = {
    "bmi": "bmi1", "lzcnt": "abm", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
    "avxvnni": "avx_vnni", "neon": "asimd",
}  # fmt: skip
"""Names that Linux has for these, where it is not only a hyphen that differs."""


def features() -> set[str]:
    """Return the processor features that the selected library uses; empty without a library."""
    return LEVELS.get(level() or "", set())


@cache
def level() -> str | None:
    """Return the name of the best library that this processor can run; None if there is none.

    Also returns None if NUMBA_CPU_NAME names a processor to compile for, and in a Python without
    GIL.
    """
    if "NUMBA_CPU_NAME" in os.environ or object.__basicsize__ != 16:  # a Python without its lock
        return None
    if sys.platform != "linux" or not FOLDER.is_dir():
        return None
    return next((name for name in LEVELS if _path(name).exists() and runs(name)), None)


def runs(name: str) -> bool:
    """Return whether this processor has all features that a library uses."""
    wanted = (_LINUX.get(one[1:], one[1:].replace("-", "_")) for one in LEVELS[name])
    return name.startswith(f"{platform.machine()}-") and _flags().issuperset(wanted)


def _flags() -> set[str]:
    """Return the processor's features by Linux's names."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    lines = (x for x in text.splitlines() if x.startswith(("flags", "Features")))
    return set(next(lines, "").split())


def _path(name: str) -> Path:
    return FOLDER / f"{name}.so"


@cache
def library() -> ctypes.CDLL | None:
    """Load the library for this processor, once; return None if there is none."""
    name = level()
    if name is None:
        return None
    # global, so that a function compiled here finds the kernels that it calls by name
    found = ctypes.CDLL(str(_path(name)), mode=ctypes.RTLD_GLOBAL)
    ctypes.c_void_p.in_dll(found, "numpy.ndarray").value = id(np.ndarray)
    return found


def address(symbol: str) -> int | None:
    """Return the address of a function or variable of the library; None if it has none."""
    loaded = library()
    if loaded is None or not hasattr(loaded, symbol):
        return None
    return ctypes.cast(loaded[symbol], ctypes.c_void_p).value
