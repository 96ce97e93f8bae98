"""Load kernels that come with the package as text in LLVM's language.

Most of the time to compile a kernel is spent by Numba in Python. Its result, text in LLVM's
language, does not depend on the processor, but on the code, on the system, on the width of vectors
and, for int8, on the kind of multiplication instructions. It contains no Python objects, so it
serves every version of Python, but only the version of llvmlite with which it was made. The package
has that text for one system, as compressed JSON, written and optimised by
`scripts/prepare_kernels.py`. LLVM then only generates machine code.

The file in the repository may be older than the code. The text of an edited kernel is not used; the
kernel is compiled by Numba. Building the wheel updates the file.
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
    """Return the path of the file for this system and vector width; it may not exist."""
    return FOLDER / f"{binding.get_process_triple()}-{LANES}.json.xz"


def key(name: str) -> str:
    """Return the key of a kernel's entry in the file.

    That of an int8 kernel also names the processor's int8 instructions, by which its code differs.
    """
    return f"{name} with {_INT8}" if "int8" in name else name


def _content() -> dict[str, Any]:
    """Read the file; return no kernels if it is missing or damaged."""
    try:
        content: dict[str, Any] = json.loads(lzma.decompress(path().read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, ValueError):
        return {"llvmlite": None, "kernels": {}}
    return content


@cache
def entries() -> dict[str, tuple[str, str]]:
    """Return the (digest, text) of each kernel in the file; none if it is for another llvmlite."""
    content = _content()
    if content["llvmlite"] != VERSION:
        return {}
    return {name: (digest, text) for name, (digest, text) in content["kernels"].items()}


def lacking() -> str | None:
    """Return why no prepared kernels can be used; None if they can."""
    made_for = _content()["llvmlite"]
    if made_for is None:
        return "there are no prepared ones for this system"
    if made_for != VERSION:
        return f"the prepared ones are for llvmlite {made_for}, and this is {VERSION}"
    return None


def text(name: str, digest: str) -> str | None:
    """Return the prepared text of a kernel; None if there is none for this digest of its code."""
    found = entries().get(key(name))
    return found[1] if found is not None and found[0] == digest else None
