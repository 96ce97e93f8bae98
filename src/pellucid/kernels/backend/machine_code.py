"""From a kernel in LLVM's language to machine code for this processor, and to calls from Python.

A kernel is a function of addresses and numbers: the convention is Numba's, but for objects of
Python, of which it knows none. An array is an address, its shape and its strides. `entry` writes,
in LLVM's language too, the function that Python calls: it takes NumPy's arrays apart where they
lie, and refuses what is not an array of the type that the kernel was compiled for.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding as llvm
import numpy as np

PROCESSOR = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
_FEATURES = os.environ.get("NUMBA_CPU_FEATURES") or (
    "" if PROCESSOR == "generic" else llvm.get_host_cpu_features().flatten()
)
FEATURES = frozenset(_FEATURES.split(","))
TARGET = (
    llvmlite.__version__, llvm.get_process_triple(), PROCESSOR, _FEATURES, object.__basicsize__
)  # fmt: skip
"""What machine code depends on, besides the kernel; the last: a Python with or without its lock."""

REFUSED = 1 << 40
"""What a call returns for arguments that a kernel is not compiled for; 0 is success."""

_NUMBERS: dict[str, tuple[Any, str]] = {
    "bool": (ctypes.c_bool, "i8"),
    "int32": (ctypes.c_int32, "i32"),
    "uint32": (ctypes.c_uint32, "i32"),
    "int64": (ctypes.c_int64, "i64"),
    "float32": (ctypes.c_float, "float"),
    "float64": (ctypes.c_double, "double"),
}
"""Types of numbers, for ctypes and for LLVM."""

_PYTHON = """
declare i64 @PyLong_AsLongLong(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyLong_FromLongLong(i64)
"""
"""What an `entry` needs of Python, all of it in the stable interface."""

# Where things are in an array and in its dtype, in bytes after what every object of Python begins
# with; a part of NumPy's binary interface.
_FIELDS = {"data": 0, "ndim": 8, "shape": 16, "strides": 24, "dtype": 40, "flags": 48, "letter": 9}
_CONTIGUOUS, _ALIGNED = 0x1, 0x100

_ARGUMENT = """
%{x}.place = getelementptr ptr, ptr %arguments, i64 {i}
%{x} = load ptr, ptr %{x}.place"""

_WHOLE = """
%{x}.wide = call i64 @PyLong_AsLongLong(ptr %{x})
%{x}.number = {cut} i64 %{x}.wide to {kind}"""

_REAL = """
%{x}.wide = call double @PyFloat_AsDouble(ptr %{x})
%{x}.number = {cut} double %{x}.wide to {kind}"""

_TRUTH = """
%{x}.wide = call i32 @PyObject_IsTrue(ptr %{x})
%{x}.number = trunc i32 %{x}.wide to {kind}"""

_IS_ARRAY = """
%{x}.type.at = getelementptr i8, ptr %{x}, i64 {type}
%{x}.type = load ptr, ptr %{x}.type.at
%{x}.is = icmp eq ptr %{x}.type, @numpy.ndarray"""

_READ = """
%{x}.ndim.at = getelementptr i8, ptr %{x}, i64 {ndim}
%{x}.ndim = load i32, ptr %{x}.ndim.at
%{x}.flags.at = getelementptr i8, ptr %{x}, i64 {flags}
%{x}.flags = load i32, ptr %{x}.flags.at
%{x}.dtype.at = getelementptr i8, ptr %{x}, i64 {dtype}
%{x}.dtype = load ptr, ptr %{x}.dtype.at
%{x}.letter.at = getelementptr i8, ptr %{x}.dtype, i64 {letter}
%{x}.letter = load i16, ptr %{x}.letter.at
%{x}.data.at = getelementptr i8, ptr %{x}, i64 {data}
%{x}.data = load ptr, ptr %{x}.data.at
%{x}.shape.at = getelementptr i8, ptr %{x}, i64 {shape}
%{x}.shape = load ptr, ptr %{x}.shape.at
%{x}.strides.at = getelementptr i8, ptr %{x}, i64 {strides}
%{x}.strides = load ptr, ptr %{x}.strides.at"""

_FITS = """
%{x}.right.ndim = icmp eq i32 %{x}.ndim, {axes}
%{x}.right.letter = icmp eq i16 %{x}.letter, {code}
%{x}.masked = and i32 %{x}.flags, {mask}
%{x}.right.flags = icmp eq i32 %{x}.masked, {mask}
%{x}.right.type = and i1 %{x}.right.ndim, %{x}.right.letter
%{x}.fits = and i1 %{x}.right.type, %{x}.right.flags"""

_AXIS = """
%{x}.shape.{axis}.at = getelementptr i64, ptr %{x}.shape, i64 {axis}
%{x}.shape.{axis} = load i64, ptr %{x}.shape.{axis}.at
%{x}.strides.{axis}.at = getelementptr i64, ptr %{x}.strides, i64 {axis}
%{x}.strides.{axis} = load i64, ptr %{x}.strides.{axis}.at
%{x}.size.{axis} = mul i64 {size}, %{x}.shape.{axis}"""

_RESULT = """
%result.place = getelementptr ptr, ptr %arguments, i64 {i}
%result.object = load ptr, ptr %result.place
%result.address = call i64 @PyLong_AsLongLong(ptr %result.object)
%result = inttoptr i64 %result.address to ptr"""

_CALL = """
%wrong = call ptr @PyErr_Occurred()
%sound = icmp eq ptr %wrong, null
br i1 %sound, label %ready, label %raise
ready:
%thread = call ptr @PyEval_SaveThread()
%status = call i32 @"{name}"({gives})
call void @PyEval_RestoreThread(ptr %thread)
%wide = sext i32 %status to i64
%answer = call ptr @PyLong_FromLongLong(i64 %wide)
ret ptr %answer
refused:
%no = call ptr @PyLong_FromLongLong(i64 {refused})
ret ptr %no
raise:
ret ptr null
}}"""

_MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
  %room = add i64 %size, %wide
  %all = add i64 %room, 40
  %block = call ptr @malloc(i64 %all)
  %none = icmp eq ptr %block, null
  br i1 %none, label %end, label %fill
fill:
  store i64 1, ptr %block
  %first = getelementptr i8, ptr %block, i64 40
  %at = ptrtoint ptr %first to i64
  %less = sub i64 %wide, 1
  %past = add i64 %at, %less
  %mask = sub i64 0, %wide
  %rounded = and i64 %past, %mask
  %data = inttoptr i64 %rounded to ptr
  %place = getelementptr i8, ptr %block, i64 24
  store ptr %data, ptr %place
  br label %end
end:
  ret ptr %block
}

define void @NRT_MemInfo_call_dtor(ptr %block) {
  call void @free(ptr %block)
  ret void
}
"""
"""Arrays that live inside a kernel: a count of who holds it, and in the fourth word its data."""


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
        """Whether x is an array that a kernel can take apart, or no array is asked for."""
        return not self.ndim or (
            type(x) is np.ndarray
            and x.dtype == self.dtype
            and x.ndim == self.ndim
            and bool(x.flags.aligned)
            and bool(x.flags.c_contiguous or not self.contiguous)
        )


class Record(NamedTuple):
    """A named tuple as an argument of a kernel, which gets its parts one after another."""

    of: Any
    parts: tuple[Any, ...]


_NAMES = {
    "b1": "bool", "f4": "float32", "f8": "float64", "i1": "int8", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u4": "uint32",
}  # fmt: skip
_TYPE = re.compile(r"(\w\d)(?:\[([^]]*)\])?")


def kinds(*given: Any) -> tuple[Any, ...]:
    """Return the types that Numba's names for them say, as in "i8,f4[:,::1]"; others stay.

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
    """Return the type of a named tuple of fields of these types."""
    return Record(of, kinds(*fields))


def values(given: Iterable[Any]) -> list[Value]:
    """Return types, records taken apart."""
    found: list[Value] = []
    for one in given:
        found += values(one.parts) if isinstance(one, Record) else [one]
    return found


class _Method(ctypes.Structure):
    """`PyMethodDef`: a function of C that Python calls."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80  # METH_FASTCALL: a list of arguments and its length
_methods: list[_Method] = []  # Python reads them as long as it calls their functions


@dataclass(frozen=True)
class Types:
    """What a kernel takes, records taken apart, and what it returns."""

    arguments: tuple[Any, ...]
    result: Value | None

    @classmethod
    def of(cls, signature: Any) -> Types:
        """Return those of a signature: "result(arguments)", or the arguments alone."""
        if not isinstance(signature, str):
            return cls(kinds(*signature), None)
        result, _, arguments = signature.rstrip(")").partition("(")
        return cls(kinds(arguments), next(iter(kinds(result)), None))

    @cached_property
    def values(self) -> list[Value]:
        """The arguments, records taken apart."""
        return values(self.arguments)

    def function(self, address: int) -> Callable[..., int]:
        """Return what calls an `entry` at an address; it returns the status.

        Its arguments are those of the kernel, records taken apart, and the address for the result.
        """
        method = _Method(b"kernel", address, _FASTCALL, None)
        _methods.append(method)
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
        made: Callable[..., int] = make(ctypes.addressof(method), None, None)
        return made

    def place(self) -> Any:
        """Return where a call writes the result, for ctypes; None where there is none."""
        return None if self.result is None else _NUMBERS[self.result.dtype][0]()

    def wrong(self, args: Sequence[Any]) -> str:
        """Name the first array of another type."""
        for i, (value, x) in enumerate(zip(self.values, args, strict=False)):
            if not value.fits(x):
                got = type(x).__name__
                if isinstance(x, np.ndarray):
                    got = f"{x.dtype} of shape {x.shape}, strides {x.strides}"
                return f"expected argument {i + 1} to be a {value}, got {got}"
        return "its arguments do not fit"


def own_arrays(args: Sequence[Any]) -> list[Any] | None:
    """Return arguments with the arrays of a subclass (`np.memmap`) as NumPy's; None without any."""
    own = [np.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    return own if any(a is not b for a, b in zip(own, args, strict=True)) else None


@cache
def _machine() -> Any:
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
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_module(llvm.parse_assembly(_MEMORY))
    llvm.add_symbol("numpy.ndarray", id(np.ndarray))
    for name in re.findall(r"@(\w+)", _PYTHON):
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    return engine


def parsed(text: str) -> Any:
    """Return a module in LLVM's language."""
    return llvm.parse_assembly(text)


def optimized(text: str) -> str:
    """Return a module in LLVM's language, optimised as Numba does: cheaply and then in full."""
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


def compiled(module: Any, more: str = "") -> bytes:
    """Return the machine code of an optimised module, and of `more` in LLVM's language."""
    if more:
        module.link_in(llvm.parse_assembly(more))
    code: bytes = _machine().emit_object(module)
    return code


def load(name: str, code: bytes) -> int:
    """Load machine code; return the address of the function `name`.

    Functions that it calls by name were loaded before.
    """
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(name)
    return address


def entry(module: Any, name: str, types: Types) -> str:
    """Return a function `name.entry` of objects that calls the kernel `name`."""
    wanted = [str(argument.type) for argument in module.get_function(name).arguments]
    arrays = [f"x{i}" for i, value in enumerate(types.values) if value.ndim]
    reads, gives = [], ["ptr %result", "ptr %error"]
    for i, value in enumerate(types.values):
        if value.ndim:
            reads.append(_fields(f"x{i}", value))
            gives += _passed(f"x{i}", value)
        else:
            kind = wanted[len(gives)]
            reads.append(_number(f"x{i}", value, kind))
            gives.append(f"{kind} %x{i}.number")
    result = len(types.values)
    return "\n".join(
        [
            "@numpy.ndarray = external global i8",
            _PYTHON,
            f'declare i32 @"{name}"({", ".join(wanted)})',
            f'define ptr @"{name}.entry"(ptr %self, ptr %arguments, i64 %count) {{',
            "%error = alloca ptr",
            f"%enough = icmp eq i64 %count, {result + (types.result is not None)}",
            _all(["%enough"], "counted"),
            *(_ARGUMENT.format(x=f"x{i}", i=i) for i in range(result)),
            *(_IS_ARRAY.format(x=x, type=object.__basicsize__ - 8) for x in arrays),
            _all([f"%{x}.is" for x in arrays], "arrays"),
            *reads,
            _all([f"%{x}.fits" for x in arrays], "right"),
            "%result = alloca ptr" if types.result is None else _RESULT.format(i=result),
            _CALL.format(name=name, gives=", ".join(gives), refused=REFUSED),
        ]
    )


def _number(x: str, value: Value, kind: str) -> str:
    """Convert a number x; Python has set an error where it is none."""
    if value.dtype == "bool":
        return _TRUTH.format(x=x, kind=kind)
    same = kind in ("i64", "double")
    if value.dtype.startswith("float"):
        return _REAL.format(x=x, kind=kind, cut="bitcast" if same else "fptrunc")
    return _WHOLE.format(x=x, kind=kind, cut="bitcast" if same else "trunc")


def _fields(x: str, value: Value) -> str:
    """Read the fields of an array x, and find whether it is one of this type."""
    head, dtype = object.__basicsize__, np.dtype(value.dtype)
    order = ord("|" if dtype.itemsize == 1 else "=")
    lines = [
        _READ.format(x=x, **{field: head + at for field, at in _FIELDS.items()}),
        _FITS.format(
            x=x, axes=value.ndim, code=ord(dtype.char) | order << 8,
            mask=_ALIGNED | _CONTIGUOUS * value.contiguous,
        ),
    ]  # fmt: skip
    size = "1"
    for axis in range(value.ndim):
        lines.append(_AXIS.format(x=x, axis=axis, size=size))
        size = f"%{x}.size.{axis}"
    return "".join(lines)


def _passed(x: str, value: Value) -> list[str]:
    """Return what a kernel takes of an array x: who holds it, sizes, where it is, its axes."""
    axes = range(value.ndim)
    size, bytes_ = f"i64 %{x}.size.{value.ndim - 1}", f"i64 {np.dtype(value.dtype).itemsize}"
    shape = [f"i64 %{x}.{what}.{axis}" for what in ("shape", "strides") for axis in axes]
    return ["ptr null", "ptr null", size, bytes_, f"ptr %{x}.data", *shape]


def _all(conditions: list[str], label: str) -> str:
    """Go on at a label if all conditions hold, else to `refused`."""
    lines, before = [], "true"
    for i, condition in enumerate(conditions):
        lines.append(f"%{label}.{i} = and i1 {before}, {condition}")
        before = f"%{label}.{i}"
    return "\n".join([*lines, f"br i1 {before}, label %{label}, label %refused", f"{label}:"])
