"""Kernels that come with the package in LLVM's language.

Most of compiling a kernel is Numba's work in Python, and its outcome, text in LLVM's language, does
not depend on the processor: only on the code, on the versions of Numba, llvmlite and Python, on the
system, on the width of our vectors and, for int8, on the instructions that multiply. For one system
that text is in the package, written by `scripts/prepare_kernels.py`. What is left to do is LLVM's:
optimise it for this processor and write machine code. The text is that of the moment after Numba
has put a kernel and its inner functions together and before it optimises them, so the machine code
is what compiling the source gives.
"""

from __future__ import annotations

import lzma
import pickle
import platform
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numba
from numba.core.compiler import CompileResult, compile_result

from pellucid.kernels.backend.simd import LANES, PAIRS, VNNI

FOLDER = Path(__file__).parents[1] / "prepared"
_INT8 = "vnni" if VNNI else "pairs" if PAIRS else "neither"


class Entry(NamedTuple):
    """A kernel: the digest of its code, its text, and what Numba has to know of it."""

    digest: str
    text: str
    described: bytes


def path() -> Path:
    """Return the file for this Python, system and width of vectors, which need not exist."""
    python = "".join(platform.python_version_tuple()[:2])
    return FOLDER / f"{llvm.get_process_triple()}-{LANES}-py{python}.xz"


def key(name: str) -> str:
    """Return the name of a kernel's entry. A kernel that multiplies in int8 says so in its name."""
    return f"{name} with {_INT8}" if "int8" in name else name


def versions() -> dict[str, str]:
    """Return the versions that the entries of a file depend on."""
    return {"llvmlite": llvmlite.__version__, "numba": numba.__version__}


def write(entries: dict[str, Entry]) -> None:
    """Write the file for this Python, system and width of vectors."""
    content = {"versions": versions(), "entries": {k: tuple(v) for k, v in entries.items()}}
    path().parent.mkdir(exist_ok=True)
    path().write_bytes(lzma.compress(pickle.dumps(content), preset=9 | lzma.PRESET_EXTREME))


@cache
def entries() -> dict[str, Entry]:
    """Return the kernels of the file, none where there is no sound file for these versions."""
    try:
        content = pickle.loads(lzma.decompress(path().read_bytes()))
    except (OSError, EOFError, lzma.LZMAError, pickle.UnpicklingError):
        return {}
    if content["versions"] != versions():
        return {}
    return {name: Entry(*entry) for name, entry in content["entries"].items()}


def describe(compiled: CompileResult) -> bytes:
    """Return what Numba has to know of a kernel, besides its text."""
    _, fndesc, environment, signature, _, _, _, reload_init, environments = compiled._reduce()
    return pickle.dumps((fndesc, environment, signature, reload_init, environments))


def load(name: str, digest: str, context: Any) -> Any:
    """Return Numba's record of a kernel, compiled from its text; None if there is no such text."""
    entry = entries().get(key(name))
    if entry is None or entry.digest != digest:
        return None
    fndesc, environment, signature, reload_init, environments = pickle.loads(entry.described)
    for load_callee in reload_init:
        load_callee()
    library = context.codegen().create_library(name)
    library.enable_object_caching()
    library._final_module = llvm.parse_assembly(entry.text)
    library.finalize()
    function = context.get_executable(library, fndesc, environment)
    for one in environments:
        library.codegen.set_env(one.env_name, one)
    return compile_result(
        typing_context=context.typing_context, target_context=context, library=library,
        environment=environment, entry_point=function, fndesc=fndesc, signature=signature,
        objectmode=False, lifted=(), reload_init=reload_init, referenced_envs=environments,
    )  # fmt: skip
