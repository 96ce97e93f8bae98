"""Kernels that come with the package in LLVM's language.

Most of compiling a kernel is Numba's work in Python, and its outcome, text in LLVM's language, does
not depend on the processor: only on the code, on the system, on the width of our vectors and, for
int8, on the instructions that multiply. It names no object of Python, so it serves every version.
For one system that text is in the package, written by `scripts/prepare_kernels.py`: compressed
JSON. The text is optimised, on a processor with vectors as wide, and LLVM writes machine code of it
for the processor that it runs on.

The file in the repository may be older than the code: of an edited kernel the text is not used, and
Numba compiles it. Building the wheel brings the file up to date.
"""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from pellucid.kernels.backend.llvm import VERSION, binding
from pellucid.kernels.backend.simd import LANES, PAIRS, VNNI

FOLDER = Path(__file__).parents[1] / "prepared"
_INT8 = "vnni" if VNNI else "pairs" if PAIRS else "neither"


def path() -> Path:
    """Return the file for this system and width of vectors, which need not exist."""
    return FOLDER / f"{binding.get_process_triple()}-{LANES}.json.xz"


def key(name: str) -> str:
    """Return the key of a kernel's entry in the file.

    That of an int8 kernel also names the processor's int8 instructions, by which its code differs.
    """
    return f"{name} with {_INT8}" if "int8" in name else name


def _content() -> dict[str, Any]:
    """Return what the file has: nothing where there is no sound file for this system."""
    try:
        content: dict[str, Any] = json.loads(lzma.decompress(path().read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, ValueError):
        return {"llvmlite": None, "kernels": {}}
    return content


@cache
def entries() -> dict[str, tuple[str, str]]:
    """Return the kernels of the file, none where it is for another llvmlite."""
    content = _content()
    if content["llvmlite"] != VERSION:
        return {}
    return {name: (digest, text) for name, (digest, text) in content["kernels"].items()}


def lacking() -> str | None:
    """Return why every kernel must be compiled from its source; None if most need not be."""
    made_for = _content()["llvmlite"]
    if made_for is None:
        return "there are no prepared ones for this system"
    if made_for != VERSION:
        return f"the prepared ones are for llvmlite {made_for}, and this is {VERSION}"
    return None


def text(name: str, digest: str) -> str | None:
    """Return a prepared kernel in LLVM's language; None if there is none of this digest."""
    found = entries().get(key(name))
    return found[1] if found is not None and found[0] == digest else None
