"""Translate a Python function to text in LLVM's language, with Numba.

By itself Numba optimises every function, writes a wrapper for calls from Python, compiles both to
machine code, links the optimised function into its callers and optimises these again. Here an inner
function is only linked, and optimised as a part of each kernel. A kernel becomes text, which
`machine_code` compiles. A function with a signature becomes a separate text, which its callers call
by name.
"""

import hashlib
import inspect
import operator
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, typeof, types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.errors import NumbaError
from numba.core.funcdesc import ExternalFunctionDescriptor
from numba.core.imputils import impl_ret_new_ref
from numba.core.registry import cpu_target
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.core.untyped_passes import InlineClosureLikes
from numba.extending import intrinsic, lower_builtin, models, register_model, typeof_impl
from numba.np.arrayobj import _empty_nd_impl

from pellucid.kernels.backend import machine_code
from pellucid.kernels.backend.compile import Inner, RefusedError
from pellucid.kernels.backend.machine_code import Record, Value
from pellucid.kernels.backend.simd import (
    OPERATORS,
    UNARY,
    Vector,
    floats,
    ints,
    truths,
    uints,
    vector_of,
)


class _Library(JITCodeLibrary):
    """Numba's container for the LLVM module of an inner function or of a kernel.

    An inner function of numbers and arrays is optimised before it is linked, so that its order of
    operations, and its bits, do not depend on the kernel. A function that takes records is long,
    and optimised together with the kernel.
    """

    alone = False
    """Whether it is optimised before it is linked."""
    whole = False
    """Whether it is a kernel's: then its body is simplified before what it calls is linked."""

    def finalize(self) -> None:
        """Link the functions that it calls into its module."""
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
    """Numba's last pass, which generates LLVM's language, without wrappers and machine code."""

    _name = "pellucid_lowering"
    whole = True

    def run_pass(self, state: Any) -> bool:
        """Generate the function's LLVM module."""
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
    """The last pass for a kernel."""

    _name = "pellucid_kernel_lowering"


@register_pass(mutates_CFG=True, analysis_only=False)
class _InnerLowering(_Lowering):
    """The last pass for an inner function."""

    _name = "pellucid_inner_lowering"
    whole = False


class _KernelCompiler(CompilerBase):
    """Numba's compiler for kernels, without passes that kernels do not need."""

    lowering: Any = _KernelLowering

    def define_pipelines(self) -> list[Any]:
        """Return Numba's passes, without those for closures and array expressions."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [
            (self.lowering if one is NativeLowering else one, name)
            for one, name in passes.passes
            if one not in (InlineClosureLikes, InlineOverloads, NopythonRewrites)
        ]
        passes.finalize()
        return [passes]


class _InnerCompiler(_KernelCompiler):
    """Numba's compiler for inner functions."""

    lowering = _InnerLowering


def _options(flags: frozenset[str], compiler: type[CompilerBase]) -> dict[str, Any]:
    """Return the options of `njit`."""
    return {
        "fastmath": set(flags),
        "error_model": "numpy",
        "no_cfunc_wrapper": True,  # they are not called from C, and it would be compiled too
        "pipeline_class": compiler,
    }


def inner(f: Callable[..., Any], flags: frozenset[str], always_inline: bool) -> Any:
    """Return f as a Numba function, which Numba links into the kernels that call it."""
    # Arrays are reference-counted only in functions that make arrays, not in those that read them.
    counts = not {"empty", "carray"}.isdisjoint(f.__code__.co_names)
    options = _options(flags, _InnerCompiler) | {"_nrt": counts, "forceinline": always_inline}
    return njit(**options)(f)


@typeof_impl.register(Inner)
def _typeof(inner: Inner, _context: Any) -> Any:
    """Tell Numba the type of an `Inner` that a kernel mentions."""
    return _type_of(inner)


@cache
def _type_of(inner: Inner) -> Any:
    """Return Numba's type of a function or an instruction."""
    context, made = cpu_target.typing_context, inner.made
    try:
        return typeof(made)
    except ValueError:  # an instruction, which Numba does not know yet
        context.refresh()
        return context.resolve_value_type(made)


def by_name(f: Callable[..., Any], name: str, takes: tuple[Any, ...]) -> Any:
    """Return an operation that calls f's machine code by name, given the types of its arguments."""
    arguments = tuple(map(_numba_type, takes))

    def lower(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        described = ExternalFunctionDescriptor(name, types.void, arguments)
        return context.call_internal(builder, described, sig, values)

    return _operation(f, 0, "void", arguments, lower)


def instruction(emit: Callable[..., Any], result: Any, takes: tuple[Any, ...]) -> Any:
    """Return the Numba intrinsic for an instruction (`compile.instruction`)."""

    def lower(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        pairs = zip(sig.args, values, strict=True)
        given = [
            builder.extract_value(value, _DATA) if isinstance(kind, types.Array) else value
            for kind, value in pairs
        ]
        value = emit(builder, *given)
        return context.get_dummy_value() if value is None else value

    return _operation(emit, 1, result, takes, lower)


_DATA = 4
"""Where in Numba's array the address of its first number is."""


def _operation(
    f: Callable[..., Any], skip: int, result: Any, takes: tuple[Any, ...], lower: Callable[..., Any]
) -> Any:
    """Return a Numba intrinsic with the parameters of f, without its first `skip`.

    `lower` emits its code; `result` and `takes` are its types, as in `compile.instruction`.
    """

    def typed(_context: Any, *given: Any) -> Any:
        pairs = zip(takes, given, strict=True)
        kinds = [one if kind is None else _numba_type(kind, given) for kind, one in pairs]
        # a new function each time, because Numba looks it up by the types
        return _numba_type(result, given)(*kinds), lambda *arguments: lower(*arguments)

    parameters = [*inspect.signature(f).parameters.values()][skip:]
    context = inspect.Parameter("_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    typed.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]
    return intrinsic(typed)


def _numba_type(kind: Any, given: tuple[Any, ...] = ()) -> Any:
    """Return Numba's type for a type in a signature.

    A callable computes it from `given`.
    """
    match kind:
        case "void":
            return types.void
        case "void*":
            return types.voidptr
        case Value("address"):
            return _ADDRESS
        case str():
            return _numba_type(*machine_code.kinds(kind))
        case Vector():
            return _VECTORS[kind]
        case Record(of, parts):
            return types.BaseTuple.from_types(tuple(map(_numba_type, parts)), of)
        case Value(dtype, ndim, contiguous):
            number = getattr(types, {"bool": "boolean"}.get(dtype, dtype))
            return types.Array(number, ndim, "C" if contiguous else "A") if ndim else number
        case tuple():
            return types.BaseTuple.from_types(tuple(map(_numba_type, kind)))
        case types.Type():
            return kind
    return _numba_type(kind(*given))


class _Own(types.Type):
    """A Numba type for vectors and addresses."""

    def __init__(self, llvm: Any, name: str) -> None:
        self.llvm = llvm
        super().__init__(name)


@register_model(_Own)
class _Model(models.PrimitiveModel):
    """Tells Numba that a value of such a type is a primitive LLVM value."""

    def __init__(self, manager: Any, own: _Own) -> None:
        super().__init__(manager, own, own.llvm)


_VECTORS = {vector: _Own(vector.llvm, str(vector)) for vector in (floats, uints, ints, truths)}
_BYTES = ir.IntType(8).as_pointer()
_ADDRESS = _Own(_BYTES, "address")


def _define(op: Any, given: dict[Any, tuple[Any, Callable[..., Any]]]) -> None:
    """Define an operator: for each tuple of operand types, the result's type and the emitter."""

    class _Typing(ConcreteTemplate):
        key = op
        cases = [signature(result, *pair) for pair, (result, _) in given.items()]  # noqa: RUF012

    infer_global(op)(_Typing)
    for pair, (_, lower) in given.items():
        lower_builtin(op, *pair)(lower)


def _define_operators() -> None:
    """Define the operators of vectors and addresses, from the tables of `simd`."""
    cases: dict[Any, dict[Any, tuple[Any, Callable[..., Any]]]] = defaultdict(dict)
    for op, vector, result, emit, how in OPERATORS:
        own, whole = _VECTORS[vector], _VECTORS[ints]
        numbers = [_numba_type(Value(name)) for name in vector.numbers]

        def lower(
            context: Any, builder: Any, sig: Any, values: Any, vector=vector, emit=emit, how=how,
            element=numbers[0],
        ) -> Any:  # fmt: skip
            sides = (
                value if isinstance(kind, _Own) else context.cast(builder, value, kind, element)
                for kind, value in zip(sig.args, values, strict=True)
            )
            return getattr(builder, emit)(*how, *(vector_of(builder, x, vector) for x in sides))

        pairs = [(own, x) for x in (own, *numbers)]
        if vector is floats:
            quotient = (whole, types.int64) if op is operator.truediv else ()
            pairs += [(whole, x) for x in (own, types.float32, types.float64, *quotient)]
        for one, other in pairs:
            cases[op][one, other] = cases[op][other, one] = _VECTORS[result], lower
    for op, vector, emit in UNARY:
        own = _VECTORS[vector]
        cases[op][own,] = (
            own,
            lambda _context, builder, _sig, values, emit=emit: getattr(builder, emit)(*values),
        )
    cases[operator.add][_ADDRESS, types.int64] = (
        _ADDRESS,
        lambda _context, builder, _sig, values: builder.gep(values[0], values[1:]),
    )
    cases[bool][_ADDRESS,] = (
        types.boolean,
        lambda _context, builder, _sig, values: builder.icmp_unsigned(
            "!=", *values, ir.Constant(_BYTES, None)
        ),
    )
    for op, of_types in cases.items():
        _define(op, of_types)


_define_operators()


@intrinsic
def empty(_context, shape, dtype):
    """Allocate an array inside a kernel, as `np.empty(shape, dtype)`.

    Numba would compile `np.empty` as a separate function for every type of array.
    """
    several = isinstance(shape, types.BaseTuple)
    kind = types.Array(dtype.instance_type, len(shape) if several else 1, "C")

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        sizes = cgutils.unpack_tuple(builder, values[0]) if several else [values[0]]
        array = _empty_nd_impl(context, builder, kind, sizes)
        return impl_ret_new_ref(context, builder, kind, array._getvalue())

    return kind(types.UniTuple(types.intp, len(shape)) if several else types.intp, dtype), emit


def text(f: Callable[..., Any], takes: tuple[Any, ...], flags: frozenset[str], name: str) -> str:
    """Translate f for these argument types.

    Returns a module whose function is called `name`.

    Raises `RefusedError` if Numba cannot compile f.
    """
    arguments = tuple(map(_numba_type, takes))
    dispatcher = njit(**_options(flags, _KernelCompiler))(f)
    try:
        with global_compiler_lock:
            compiled = dispatcher._compiler.compile(arguments, types.void)
            compiled.library.finalize()
    except NumbaError as error:
        raise RefusedError(str(error)) from error
    return _plain(str(compiled.library._final_module), compiled.fndesc.llvm_func_name, name)


_SYMBOL = re.compile(r'@(?:"([^"]+)"|([-\w$.]+))')
_DECLARED = re.compile(r'^declare .*?@(?:"([^"]+)"|([-\w$.]+))\(', re.MULTILINE)
_OBJECTS = re.compile(
    r"^(@\.const\.\S+ = internal constant \[\d+ x i8\]) c\".*$"
    r"|^(@numba\.dynamic\.globals\.\S+ = linkonce global ptr) inttoptr .*$",
    re.MULTILINE,
)


def _plain(module: str, kernel: str, name: str) -> str:
    """Rename the kernel and the private names of a module, and remove its Python data.

    Numba's names are long (a megabyte for a search) and differ between processes. The Python data
    are pickled errors, which are not used: a kernel's only error is a lack of memory.
    """
    module = _OBJECTS.sub(lambda m: f"{m[1]} zeroinitializer" if m[1] else f"{m[2]} null", module)
    module = re.sub(r'!"_ZN[^"]*"', '!""', module)  # the names of scopes
    module = re.sub(r"(?m)^source_filename.*\n|^; .*\n", "", module)
    # functions that it only declares keep their names; its own get names unique to this kernel
    called = [match[1] or match[2] for match in _DECLARED.finditer(module)]
    names = {kernel: f'@"{name}"', **{other: f'@"{other}"' for other in called}}
    own = "k" + hashlib.blake2b(name.encode(), digest_size=4).hexdigest()

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match[1] or match[2], f"@{own}.{len(names)}")

    return _SYMBOL.sub(renamed, module)
