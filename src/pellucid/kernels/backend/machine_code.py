"""Translate kernels from LLVM's language to machine code, and make them callable from Python.

A kernel is a function of addresses and numbers, by Numba's calling convention without Python
objects: an array is an address, a shape and strides. `entry` generates, in LLVM's language too, the
function that Python calls. It reads these from NumPy's array objects, and refuses arrays of another
type than the kernel was compiled for.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.kernels.backend import built
from pellucid.kernels.backend.llvm import VERSION, ir
from pellucid.kernels.backend.llvm import binding as llvm

PROCESSOR = os.environ.get("NUMBA_CPU_NAME") or (llvm.get_host_cpu_name() if VERSION else "generic")
_FEATURES = os.environ.get("NUMBA_CPU_FEATURES") or (
    "" if PROCESSOR == "generic" else llvm.get_host_cpu_features().flatten()
)
FEATURES = frozenset(built.features() or _FEATURES.split(","))
TARGET = (
    VERSION, llvm.get_process_triple(), PROCESSOR, _FEATURES, object.__basicsize__
)  # fmt: skip
"""Machine code depends on this and the kernel; the last entry tells Pythons without a GIL apart."""

REFUSED = 1 << 40
"""Status of a call with arguments that the kernel is not compiled for; 0 is success."""

_i8, _i16, _i32, _i64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_object, _integers, _double = _i8.as_pointer(), _i64.as_pointer(), ir.DoubleType()
_NUMBERS = {
    "bool": _i8, "int32": _i32, "uint32": _i32, "int64": _i64, "float32": ir.FloatType(),
    "float64": _double, "address": _object,
}  # fmt: skip
"""Types of numbers, for LLVM."""

_PYTHON = (
    "PyLong_AsLongLong", "PyFloat_AsDouble", "PyObject_IsTrue", "PyErr_Occurred",
    "PyEval_SaveThread", "PyEval_RestoreThread", "PyLong_FromLongLong",
)  # fmt: skip
"""Functions of Python that an `entry` calls, all in the stable interface."""

_FIELDS: dict[str, tuple[int, Any]] = {
    "type": (-8, _object), "data": (0, _object), "ndim": (8, _i32), "shape": (16, _integers),
    "strides": (24, _integers), "dtype": (40, _object), "flags": (48, _i32), "letter": (9, _i16),
}  # fmt: skip
"""Where things are in an array, and the letter in its dtype, in bytes after what every object of
Python begins with; a part of NumPy's binary interface."""
_CONTIGUOUS, _ALIGNED = 0x1, 0x100

_MEMORY = (Path(__file__).parent / "memory.ll").read_text(encoding="utf-8")
"""In LLVM's language, the functions that allocate arrays inside kernels, and free them."""


class Value(NamedTuple):
    """An argument of a kernel, or a part of a record: an array of `ndim` axes, or a number."""

    dtype: str
    ndim: int = 0
    contiguous: bool = True
    """Whether the array must be C-contiguous."""

    def __str__(self) -> str:
        if not self.ndim:
            return self.dtype
        return f"{'contiguous ' * self.contiguous}{self.dtype} array of {self.ndim} axes"

    def fits(self, x: Any) -> bool:
        """Return whether x is an aligned `np.ndarray` of this type; True if this is a number."""
        return not self.ndim or (
            type(x) is np.ndarray
            and x.dtype == self.dtype
            and x.ndim == self.ndim
            and bool(x.flags.aligned)
            and bool(x.flags.c_contiguous or not self.contiguous)
        )


class Record(NamedTuple):
    """The type of a named tuple as argument of a kernel, to which its fields are passed in turn."""

    of: Any
    parts: tuple[Any, ...]


_NAMES = {
    "b1": "bool", "f4": "float32", "f8": "float64", "i1": "int8", "i4": "int32", "i8": "int64",
    "p8": "address", "u1": "uint8", "u4": "uint32",
}  # fmt: skip
_TYPE = re.compile(r"(\w\d)(?:\[([^]]*)\])?")


def kinds(*given: Any) -> tuple[Any, ...]:
    """Parse types in Numba's notation, such as "i8,f4[:,::1]".

    Other arguments are kept.

    >>> kinds("i8,f4[:,::1]")
    (Value(dtype='int64', ndim=0, contiguous=True), Value(dtype='float32', ndim=2, contiguous=True))
    """
    found: list[Any] = []
    for one in given:
        if not isinstance(one, str):
            found.append(one)
            continue
        for name, axes in _TYPE.findall(one):
            ndim = axes.count(",") + 1 if axes else 0
            found.append(Value(_NAMES[name], ndim, not ndim or axes.endswith("::1")))
    return tuple(found)


def record(of: Any, *fields: Any) -> Record:
    """Return the type of a named tuple class, given the types of its fields."""
    return Record(of, kinds(*fields))


def values(given: Iterable[Any]) -> list[Value]:
    """Return types with each record replaced by the types of its fields."""
    found: list[Value] = []
    for one in given:
        found += values(one.parts) if isinstance(one, Record) else [one]
    return found


class _Method(ctypes.Structure):
    """Python's C structure `PyMethodDef`, which describes a C function."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80  # METH_FASTCALL: a list of arguments and its length


def wrong(wanted: Sequence[Value], args: Sequence[Any]) -> str:
    """Return an error message that names the first argument of another type."""
    for i, (value, x) in enumerate(zip(wanted, args, strict=False)):
        if not value.fits(x):
            got = type(x).__name__
            if isinstance(x, np.ndarray):
                got = f"{x.dtype} of shape {x.shape}, strides {x.strides}"
            return f"expected argument {i + 1} to be a {value}, got {got}"
    return "its arguments do not fit"


def own_arrays(args: Sequence[Any]) -> list[Any] | None:
    """Convert arrays of subclasses (`np.memmap`) to `np.ndarray`.

    Returns None if there are none.
    """
    own = [np.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    return own if any(a is not b for a, b in zip(own, args, strict=True)) else None


@cache
def _machine() -> Any:
    """Return LLVM's description of the processor to compile for."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(TARGET[1])
    x86 = TARGET[1].startswith(("x86", "i386", "i686"))
    return target.create_target_machine(
        cpu=PROCESSOR, features=_FEATURES, opt=3, jit=True, codemodel="jitdefault",
        reloc="static" if x86 else "default",
    )  # fmt: skip


@cache
def _engine() -> Any:
    """Return LLVM's just-in-time linker, with the functions that kernels may call."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_module(llvm.parse_assembly(_MEMORY))
    for name in _PYTHON:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    engine.finalize_object()
    know_arrays(engine.get_global_value_address("numpy.ndarray"))
    return engine


def know_arrays(address: int) -> None:
    """Store the address of the type `np.ndarray` where `entry` functions read it."""
    ctypes.c_void_p.from_address(address).value = id(np.ndarray)


def parsed(text: str) -> Any:
    """Parse the text of a module in LLVM's language."""
    return llvm.parse_assembly(text)


def optimized(text: str) -> str:
    """Optimise a module in LLVM's language as Numba does, first cheaply and then fully."""
    module = llvm.parse_assembly(text)
    for full in (False, True):
        options = llvm.create_pipeline_tuning_options()
        options.speed_level = 3 if full else 0
        options.slp_vectorization = False
        options.loop_vectorization = full
        builder = llvm.create_pass_builder(_machine(), options)
        passes = builder.getModulePassManager()
        if not full:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.add_refprune_pass(llvm.RefPruneSubpasses.ALL)
        passes.run(module, builder)
    return str(module)


def compiled(module: Any, more: str) -> bytes:
    """Return the machine code of an optimised module, together with `more` text."""
    module.link_in(llvm.parse_assembly(more))
    code: bytes = _machine().emit_object(module)
    return code


def function(name: str, code: bytes) -> Callable[..., int]:
    """Load the machine code of a kernel; return its `entry` as a Python function.

    The kernels that it calls by name must have been loaded before.
    """
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return called(engine.get_function_address(f"{name}.entry"))


def called(address: int) -> Callable[..., int]:
    """Return the `entry` at an address as a Python function.

    It takes the kernel's arguments, with records replaced by their fields, and returns the status.
    """
    method = _Method(b"kernel", address, _FASTCALL, None)
    # Python uses it as long as the function exists, perhaps longer than this module: never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(method))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    made: Callable[..., int] = make(ctypes.addressof(method), None, None)
    return made


def call_named(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """Emit a call by name of a function of LLVM, the C library or Python, or of a kernel."""
    kind = ir.FunctionType(result, [value.type for value in values])
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return builder.call(function, values)


def entry(name: str, wanted: Sequence[Value]) -> str:
    """Return the text, in LLVM's language, of a function `name.entry` that calls a kernel.

    Python calls it with objects. It checks and converts them, and returns the kernel's status, or
    `REFUSED` if their number or an array does not fit. For a number of another type it raises
    Python's own error.
    """
    module = ir.Module()
    module.triple = TARGET[1]
    kind = ir.FunctionType(_object, [_object, _object.as_pointer(), _i64])
    function = ir.Function(module, kind, f"{name}.entry")
    _, arguments, count = function.args
    builder, nothing = ir.IRBuilder(function.append_basic_block()), ir.Constant(_object, None)
    result, error = builder.alloca(_object), builder.alloca(_object)
    _refuse_unless(builder, builder.icmp_signed("==", count, _i64(len(wanted))))
    objects = [builder.load(builder.gep(arguments, [_i64(i)])) for i in range(len(wanted))]
    # Arrays first: where a number is none, Python has set an error.
    arrays = {i: _array(builder, objects[i], value) for i, value in enumerate(wanted) if value.ndim}
    passed = [
        part
        for i, value in enumerate(wanted)
        for part in arrays.get(i) or [_number(builder, objects[i], value.dtype)]
    ]
    wrong = call_named(builder, "PyErr_Occurred", _object)
    with builder.if_then(builder.icmp_unsigned("!=", wrong, nothing), likely=False):
        builder.ret(nothing)
    thread = call_named(builder, "PyEval_SaveThread", _object)
    status = call_named(builder, name, _i32, result, error, *passed)
    call_named(builder, "PyEval_RestoreThread", ir.VoidType(), thread)
    _return(builder, builder.sext(status, _i64))
    return str(module)


def _return(builder: Any, status: Any) -> None:
    """Emit a return of the status as a Python integer."""
    builder.ret(call_named(builder, "PyLong_FromLongLong", _object, status))


def _refuse_unless(builder: Any, condition: Any) -> None:
    """Emit a return of `REFUSED` unless the condition holds."""
    with builder.if_then(builder.not_(condition), likely=False):
        _return(builder, _i64(REFUSED))


def _number(builder: Any, x: Any, dtype: str) -> Any:
    """Emit the conversion of an object to a number.

    Python sets an error if it is not one.
    """
    kind = _NUMBERS[dtype]
    if dtype == "bool":
        return builder.trunc(call_named(builder, "PyObject_IsTrue", _i32, x), kind)
    if dtype.startswith("float"):
        return builder.fptrunc(call_named(builder, "PyFloat_AsDouble", _double, x), kind)
    whole = call_named(builder, "PyLong_AsLongLong", _i64, x)
    return builder.inttoptr(whole, kind) if dtype == "address" else builder.trunc(whole, kind)


def _array(builder: Any, x: Any, value: Value) -> list[Any]:
    """Emit code that refuses an object unless it is an array of this type.

    Returns the values that a kernel takes of an array: two for its owner (none), the number of
    elements, their size, the address, the shape and the strides.
    """

    def field(x: Any, name: str) -> Any:
        at, kind = _FIELDS[name]
        place = builder.gep(x, [_i64(object.__basicsize__ + at)])
        return builder.load(builder.bitcast(place, kind.as_pointer()), align=1)

    known, dtype = builder.module.globals, np.dtype(value.dtype)
    place = known.get("numpy.ndarray")
    place = place or ir.GlobalVariable(builder.module, _object, "numpy.ndarray")
    _refuse_unless(builder, builder.icmp_unsigned("==", field(x, "type"), builder.load(place)))
    letter = ord(dtype.char) | ord("|" if dtype.itemsize == 1 else "=") << 8
    flags = _i32(_ALIGNED | _CONTIGUOUS * value.contiguous)
    for found, right in (
        (field(x, "ndim"), _i32(value.ndim)),
        (field(field(x, "dtype"), "letter"), _i16(letter)),
        (builder.and_(field(x, "flags"), flags), flags),
    ):
        _refuse_unless(builder, builder.icmp_signed("==", found, right))
    shape, strides = (
        [builder.load(builder.gep(axes, [_i64(i)])) for i in range(value.ndim)]
        for axes in (field(x, "shape"), field(x, "strides"))
    )
    nothing, size = ir.Constant(_object, None), reduce(builder.mul, shape)
    return [nothing, nothing, size, _i64(dtype.itemsize), field(x, "data"), *shape, *strides]
