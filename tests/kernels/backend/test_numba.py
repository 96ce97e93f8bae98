"""The parts of Numba that are not its public interface and that the kernels rely on."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path

import numba
import numpy as np
from numba.core.options import DefaultOptions

from pellucid.kernels import dropout
from pellucid.kernels.backend import numba_text, thread_pool
from pellucid.kernels.backend.compile import FAST

ROOT = Path(__file__).parents[3]
CHECKED = (0, 68)
"""The newest version with which all of this was read and the tests of kernels run."""

PUBLIC = {"numba.njit", "numba.types", "numba.extending", "numba.typeof", "llvmlite.ir"}
HOOKS = {
    "numba.core.codegen.JITCodeLibrary",  # numba_text: text and no machine code
    "numba.core.compiler.CompilerBase",
    "numba.core.compiler.DefaultPassBuilder",
    "numba.core.compiler_lock.global_compiler_lock",
    "numba.core.compiler_machinery.register_pass",
    "numba.core.funcdesc.ExternalFunctionDescriptor",  # numba_text: calls by name
    "numba.core.errors.NumbaError",
    "numba.core.registry.cpu_target",  # numba_text: what an instruction of ours is to Numba
    "numba.core.typed_passes.InlineOverloads",  # numba_text: passes that nothing needs
    "numba.core.typed_passes.NativeLowering",
    "numba.core.typed_passes.NopythonRewrites",
    "numba.core.untyped_passes.InlineClosureLikes",
    "numba.core.cgutils.unpack_tuple",  # numba_text: a new array
    "numba.core.imputils.impl_ret_new_ref",
    "numba.np.arrayobj._empty_nd_impl",
    "numba.core.typing.templates.ConcreteTemplate",  # numba_text: operators between vectors
    "numba.core.typing.templates.infer_global",
    "numba.core.typing.templates.signature",
}


def imported(path: Path) -> set[str]:
    """Return the names that a file uses of Numba and llvmlite."""
    tree, names, modules = ast.parse(path.read_text(encoding="utf-8")), set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name == "numba.core.cgutils":
                    modules[alias.name] = name
                elif name.startswith(("numba.", "llvmlite.")):
                    names.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.update(
                {f"{modules[node.value.id]}.{node.attr}"} if node.value.id in modules else ()
            )
    return names


def test_every_private_hook_of_numba() -> None:
    """Checked with Numba 0.68.1. For a newer one, read these again and raise the bound."""
    # What is imported is named above, and exists.
    used = set().union(*(imported(path) for path in (ROOT / "src").rglob("*.py")))
    private = {name for name in used if not name.startswith(tuple(PUBLIC))}
    assert private == HOOKS
    for name in HOOKS:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(importlib.import_module(module), attribute), name

    # The version of which this is known is the newest that can be installed.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bound = next(line for line in project["dependencies"] if line.startswith("numba"))
    assert bound.partition(";")[0].endswith(f"<{CHECKED[0]}.{CHECKED[1] + 1}")
    assert tuple(map(int, numba.__version__.split(".")[:2])) <= CHECKED

    # The text: a dispatcher's compiler returns a library, whose module is not yet optimised.
    assert {"no_cfunc_wrapper", "forceinline"} <= set(dir(DefaultOptions))
    text = numba_text.text(dropout._rows.body(), dropout._rows.arguments, FAST, "a.name")
    assert '@"a.name"(ptr ' in text

    # The calling convention: where to put the result and the exception, then the arguments with
    # arrays and tuples taken apart; 0 is success. Otherwise tasks would read wrong arguments.
    assert (thread_pool._FIRST, thread_pool._TASK) == (2, 1)
    kernel = dropout._rows
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.empty((4, 3), np.float32)
    names, site = np.arange(4, dtype=np.uint32), np.uint32(0)
    kernel(4, x, names, site, np.uint32(0), np.float32(2.0), y)
    np.testing.assert_array_equal(y, 2 * x)
