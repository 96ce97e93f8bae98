"""What Numba does to kernels and to the functions that only kernels call, and what it need not do.

Numba optimises every function, writes a wrapper for calls from Python, compiles both to machine
code, links the optimised function into its callers and optimises these. An inner function needs
only the linking: it is optimised as a part of each kernel. A long function with one signature is
compiled to machine code, and its callers link nothing but its name.

For every `+` and every load, each time that it looks at them, Numba tries one rule after another
until one fits the types. Here the rule that fitted is remembered.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import copy
from functools import cache, partial
from typing import Any, ClassVar

import llvmlite.binding as llvm
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.typing.context import Context
from numba.core.untyped_passes import InlineClosureLikes


class _Types(Context):
    """Numba's context, which remembers the types of calls that are compiled nowhere else."""

    _known: ClassVar[dict[Any, tuple[Any, Any]]] = {}

    def __init__(self, context: Any) -> None:
        self.__dict__ = context.__dict__

    def _resolve_user_function_type(self, f: Any, args: Any, kws: Any, literals: Any = None) -> Any:
        known = self._lookup_global(f)
        kind = f if known is None else known
        if type(kind) is not types.Function:
            return super()._resolve_user_function_type(f, args, kws, literals)
        key = id(kind), args, tuple(kws.items())
        if key in self._known:
            return self._known[key][1]
        found = super()._resolve_user_function_type(f, args, kws, literals)
        # What Numba compiles for a call it registers when the type is found.
        if found is not None and kind.get_impl_key(found) is kind.typing_key:
            self._known[key] = kind, found  # it holds `kind`, whose id is in the key
        return found


_types = cache(_Types)


class KernelCompiler(CompilerBase):
    """Numba's compiler, less what nothing here is written with: closures, expressions of arrays."""

    lowering: Any = NativeLowering

    def __init__(self, context: Any, *rest: Any) -> None:
        super().__init__(context, *rest)
        self.state.typingctx = _types(context)

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


class _InnerLibrary(JITCodeLibrary):
    """A module to link into others.

    One of numbers and arrays is optimised before, in its own order of operations: its bits must
    not depend on the kernel. One that takes records is long, and optimised with the kernel.
    """

    alone = False

    def finalize(self) -> None:
        """Link what it calls, for others to link."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        if self.alone:
            self._optimize_final_module()
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        if self.alone:
            super()._optimize_functions(ll_module)
        else:
            ll_module.data_layout = self._codegen._data_layout


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "pellucid_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower to LLVM's language, and register the result for callers to link."""
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.alone = not any(isinstance(kind, types.BaseTuple) for kind in state.args)
        state.flags.no_cpython_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        # Callers find the function by this object. Numba wants a builtin, and calls it where Python
        # calls the function: this one takes no arguments and says so.
        key: Any = [].clear
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = state.cr._replace(cfunc=key)
        return True


class InnerCompiler(KernelCompiler):
    """The compiler of inner functions that are linked."""

    lowering = _InnerLowering


class _Symbol(JITCodeLibrary):
    """Nothing to link: a function's name is declared where it is called."""

    def finalize(self) -> None:
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        return self._final_module


def call_by_symbol(f: Callable[..., Any], compiled: Any) -> None:
    """Have functions that call f call its machine code, by name.

    A caller that comes from the cache has f loaded before.
    """
    context, name = compiled.target_context, f"{f.__module__}.{f.__qualname__}"
    llvm.add_symbol(name, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
    library = _Symbol(context.codegen(), name)
    library._reload_init.add(partial(_load, f.__module__, f.__qualname__))
    declared = copy(compiled.fndesc)
    declared.mangled_name = name
    context.remove_user_function(compiled.entry_point)
    context.insert_user_function(compiled.entry_point, declared, [library])


def _load(module: str, function: str) -> None:
    getattr(importlib.import_module(module), function).load()
