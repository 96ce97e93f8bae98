"""Numba's compiler for functions that only kernels call: it stops before machine code.

Numba optimises every function, writes a wrapper for calls from Python, compiles both to machine
code, and then links the optimised function into its callers. Of an inner function only the first
and the last are needed. What callers link is the same, so kernels keep their bits and their speed.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _InnerLibrary(JITCodeLibrary):
    """A module to link into others."""

    def finalize(self) -> None:
        """Link what it calls and optimise, for others to link."""
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._optimize_final_module()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(NativeLowering):
    _name = "pellucid_inner_lowering"

    def run_pass(self, state: Any) -> bool:
        """Lower to LLVM's language, and register the result for callers to link."""
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_cpython_wrapper = state.flags.no_compile = True
        super().run_pass(state)
        # Callers find the function by this object. Numba wants a builtin, and calls it where Python
        # calls the function: this one takes no arguments and says so.
        key: Any = [].clear
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.reload_init.extend(state.library._reload_init)
        state["cr"] = state.cr._replace(cfunc=key)
        return True


class InnerCompiler(CompilerBase):
    """The default compiler with `_InnerLowering` for its last step."""

    def define_pipelines(self) -> list[Any]:
        """Return the passes."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (_InnerLowering if one is NativeLowering else one, name) for one, name in passes.passes
        ]
        passes.finalize()
        return [passes]
