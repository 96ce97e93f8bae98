"""Numba's part of a kernel: from a function in Python to text in LLVM's language.

Numba optimises every function, writes a wrapper for calls from Python, compiles both to machine
code, links the optimised function into its callers and optimises these. Here an inner function is
only linked, and optimised as a part of each kernel, and what a kernel becomes is text, of which
`machine_code` does the rest. A function with a signature of its own is text of its own, and its
callers name it.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core import sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.funcdesc import ExternalFunctionDescriptor
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

from pellucid.kernels.backend.machine_code import Types, Value
from pellucid.kernels.backend.simd import operation


class _Library(JITCodeLibrary):
    """A module to link into others, or a kernel's.

    An inner function of numbers and arrays is optimised before, in its own order of operations: its
    bits must not depend on the kernel. One that takes records is long, and optimised with the
    kernel.
    """

    alone = False
    """Whether it is optimised before it is linked."""
    whole = False
    """Whether it is a kernel's: then its body is simplified before what it calls is linked."""

    def finalize(self) -> None:
        """Link what it calls."""
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self.alone:
            self._optimize_final_module()
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        if self.alone or self.whole:
            super()._optimize_functions(ll_module)
        else:
            ll_module.data_layout = self._codegen._data_layout


class _Lowering(NativeLowering):
    _name = "pellucid_lowering"
    whole = True

    def run_pass(self, state: Any) -> bool:
        """Lower to LLVM's language."""
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.whole = self.whole
        state.library.alone = not self.whole and not any(
            isinstance(kind, types.BaseTuple) for kind in state.args
        )
        state.flags.no_cpython_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        if not self.whole:
            # Callers find the function by this object. Numba wants a builtin, and calls it where
            # Python calls the function: this one takes no arguments and says so.
            key: Any = [].clear
            state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
            state["cr"] = state.cr._replace(cfunc=key)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(_Lowering):
    _name = "pellucid_kernel_lowering"


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(_Lowering):
    _name = "pellucid_inner_lowering"
    whole = False


class _KernelCompiler(CompilerBase):
    """Numba's compiler, less what nothing here is written with: closures, expressions of arrays."""

    lowering: Any = _KernelLowering

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering if one is NativeLowering else one, name)
            for one, name in passes.passes
            if one not in (InlineClosureLikes, InlineOverloads, NopythonRewrites)
        ]
        passes.finalize()
        return [passes]


class _InnerCompiler(_KernelCompiler):
    lowering = _InnerLowering


def _options(flags: frozenset[str], compiler: type[CompilerBase]) -> dict[str, Any]:
    return {
        "fastmath": set(flags),
        "error_model": "numpy",
        "no_cfunc_wrapper": True,  # nobody calls them from C, and it would be compiled too
        "pipeline_class": compiler,
    }


def inner(f: Callable[..., Any], flags: frozenset[str], always_inline: bool) -> Any:
    """Return what Numba links into the kernels that call f."""
    # Who holds an array is counted where arrays are made: not where it is read, in a loop.
    counts = not {"empty", "carray"}.isdisjoint(f.__code__.co_names)
    options = _options(flags, _InnerCompiler) | {"_nrt": counts, "forceinline": always_inline}
    return njit(**options)(f)


def by_name(f: Callable[..., Any], name: str, signature: Any) -> Any:
    """Return an instruction that calls f's machine code, which has a name."""
    arguments, result = sigutils.normalize_signature(signature)

    def lower(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        described = ExternalFunctionDescriptor(name, result, arguments)
        return context.call_internal(builder, described, sig, values)

    parameters = [*inspect.signature(f).parameters.values()]
    return operation(name, parameters, result, arguments, lower)


def types_of(signature: Any) -> Types:
    """Return what a kernel of this signature takes and returns."""
    arguments, result = sigutils.normalize_signature(signature)
    return Types(
        tuple(value for kind in arguments for value in _parts(kind)),
        None if result is None or result == types.void else Value(str(result)),
        any(isinstance(kind, types.BaseTuple) for kind in arguments),
    )


def _parts(kind: Any) -> list[Value]:
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return [value for part in parts for value in _parts(part)]
    if isinstance(kind, types.Array):
        return [Value(str(kind.dtype), kind.ndim, kind.layout == "C")]
    return [Value(str(kind))]


def text(f: Callable[..., Any], signature: Any, flags: frozenset[str], name: str) -> str:
    """Return a module in LLVM's language whose function `name` is f for one signature."""
    arguments, result = sigutils.normalize_signature(signature)
    dispatcher = njit(**_options(flags, _KernelCompiler))(f)
    with global_compiler_lock:
        compiled = dispatcher._compiler.compile(arguments, result)
        compiled.library.finalize()
    return _plain(str(compiled.library._final_module), compiled.fndesc.llvm_func_name, name)


_SYMBOL = re.compile(r'@(?:"([^"]+)"|([-\w$.]+))')
_DECLARED = re.compile(r'^declare .*?@(?:"([^"]+)"|([-\w$.]+))\(', re.MULTILINE)
_OBJECTS = re.compile(
    r"^(@\.const\.\S+ = internal constant \[\d+ x i8\]) c\".*$"
    r"|^(@numba\.dynamic\.globals\.\S+ = linkonce global ptr) inttoptr .*$",
    re.MULTILINE,
)


def _plain(module: str, kernel: str, name: str) -> str:
    """Rename a kernel, and what is its own alone, and leave out what is for Python.

    That is the text of its errors, which are pickles and are not read: a kernel's only error is
    that there was no memory. Numba's names are long (a search has a megabyte of them), and not the
    same in every process.
    """
    module = _OBJECTS.sub(lambda m: f"{m[1]} zeroinitializer" if m[1] else f"{m[2]} null", module)
    module = re.sub(r'!"_ZN[^"]*"', '!""', module)  # the names of scopes
    module = re.sub(r"(?m)^source_filename.*\n|^; .*\n", "", module)
    names = {kernel: f'@"{name}"'}
    own = (
        "k" + hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    )  # apart from others' names
    names |= {other: f'@"{other}"' for other in called(module)}

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match[1] or match[2], f"@{own}.{len(names)}")

    return _SYMBOL.sub(renamed, module)


def called(module: str) -> list[str]:
    """Return the names of the functions that a module in LLVM's language calls and has not."""
    return [match[1] or match[2] for match in _DECLARED.finditer(module)]
