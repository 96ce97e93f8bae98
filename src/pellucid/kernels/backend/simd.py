"""Vectors of numbers inside a kernel: what `x + y` means when x fills a register.

A compiler vectorises a loop of 10,000 steps well and one of 50 badly (checks before it, a scalar
rest after it, sums and maxima across lanes). Attention is made of the short ones. So here are three
types for Numba, LANES floats, LANES 32-bit integers and LANES booleans, with the usual operators; a
plain number on one side means a vector full of it. A function written with operators and
`choose` works on numbers and on vectors alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numba.np.arrayobj import make_array

from pellucid.kernels.backend.machine_code import FEATURES

# LLVM keeps its own vectors at 256 bits on Intel's processors; ours, whose width is explicit, it
# keeps.
LANES = 16 if "+avx512f" in FEATURES else 8
VNNI = ("+avx512vnni" if LANES == 16 else "+avxvnni") in FEATURES
PAIRS = not VNNI and ("+avx512bw" if LANES == 16 else "+avx2") in FEATURES
"""What products of 8-bit integers are made of; see `int8`."""
WIDTH = 2 * LANES
"""Columns of a panel, the part of a matrix that one pass of a product reads."""

_i32 = ir.IntType(32)


class _Vector(types.Type):
    def __init__(self, element: Any, llvm: Any) -> None:
        self.element, self.llvm = element, ir.VectorType(llvm, LANES)
        super().__init__(f"{element}x{LANES}")


floats = _Vector(types.float32, ir.FloatType())
uints = _Vector(types.uint32, _i32)
truths = _Vector(types.boolean, ir.IntType(1))


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: _Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


def instruction(f: Callable[..., Any]) -> Any:
    """Mark a function that types and emits one operation inside kernels."""
    return intrinsic(f)


def spread(builder: Any, value: Any) -> Any:
    """Emit a vector with `value` in every lane."""
    kind = ir.VectorType(value.type, LANES)
    nothing = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_i32, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _i32(0)), nothing, zeros)


def _define(op: Callable[..., Any], vector: _Vector, emit: str, result: _Vector, *how: str) -> None:
    """Let `op` work between two vectors, and between a vector and a number."""
    pairs = [(vector, vector), (vector, vector.element), (vector.element, vector)]

    class _Typing(ConcreteTemplate):
        key = op
        cases = [signature(result, *pair) for pair in pairs]  # noqa: RUF012

    infer_global(op)(_Typing)

    def lower(_context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        sides = (
            value if kind == vector else spread(builder, value)
            for kind, value in zip(sig.args, values, strict=True)
        )
        return getattr(builder, emit)(*how, *sides)

    for pair in pairs:
        lower_builtin(op, *pair)(lower)


_define(operator.add, floats, "fadd", floats)
_define(operator.sub, floats, "fsub", floats)
_define(operator.mul, floats, "fmul", floats)
_define(operator.truediv, floats, "fdiv", floats)
_define(operator.lt, floats, "fcmp_ordered", truths, "<")
_define(operator.gt, floats, "fcmp_ordered", truths, ">")
_define(operator.add, uints, "add", uints)
_define(operator.mul, uints, "mul", uints)
_define(operator.xor, uints, "xor", uints)
_define(operator.rshift, uints, "lshr", uints)
_define(operator.lshift, uints, "shl", uints)
_define(operator.and_, uints, "and_", uints)
_define(operator.or_, uints, "or_", uints)
_define(operator.ge, uints, "icmp_unsigned", truths, ">=")


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(make_array(kind)(context, builder, array).data, [at])


@instruction
def load(_context, array, at):
    """Read LANES floats from the `at`-th after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        where = _pointer(context, builder, sig.args[0], *values)
        return builder.load(builder.bitcast(where, floats.llvm.as_pointer()), align=4)

    return floats(array, types.intp), emit


@instruction
def load_truths(_context, array, at):
    """Read which of LANES bytes from the `at`-th after an array's first are not 0."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        where = _pointer(context, builder, sig.args[0], *values)
        kind = ir.VectorType(ir.IntType(8), LANES)
        read = builder.load(builder.bitcast(where, kind.as_pointer()), align=1)
        return builder.icmp_unsigned("!=", read, ir.Constant(kind, [0] * LANES))

    return truths(array, types.intp), emit


@instruction
def store(_context, array, at, value):
    """Write LANES floats to the `at`-th after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        where = _pointer(context, builder, sig.args[0], *values[:2])
        builder.store(values[2], builder.bitcast(where, floats.llvm.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, floats), emit


@instruction
def get(_context, array, at):
    """Read the `at`-th number after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return builder.load(_pointer(context, builder, sig.args[0], *values), align=4)

    return array.dtype(array, types.intp), emit


@instruction
def put(_context, array, at, value):
    """Write the `at`-th number after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        where = _pointer(context, builder, sig.args[0], *values[:2])
        builder.store(values[2], where, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), emit


@instruction
def where(_context, array, at):
    """The address of the `at`-th number after an array's first.

    It keeps no array alive: what holds the array must live on where the address is used.
    """

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        address = _pointer(context, builder, sig.args[0], *values)
        return builder.ptrtoint(address, context.get_value_type(types.intp))

    return types.intp(array, types.intp), emit


@instruction
def pointer(_context, address):
    """An address in memory, as what `numba.carray` makes an array of."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), emit


@instruction
def full(_context, value):
    """A vector with a number in every lane."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return spread(builder, values[0])

    return (uints if value == types.uint32 else floats)(value), emit


@instruction
def counting(_context):
    """0, 1, 2, …: the number of each lane."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return ir.Constant(uints.llvm, list(range(LANES)))

    return uints(), emit


@instruction
def choose(_context, where, this, that):
    """`this` where the truth holds, else `that`; numbers or vectors."""
    result = this if isinstance(this, _Vector) else that

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        where, *sides = values
        if isinstance(result, _Vector):
            sides = [
                side if isinstance(kind, _Vector) else spread(builder, side)
                for kind, side in zip(sig.args[1:], sides, strict=True)
            ]
        return builder.select(where, *sides)

    return result(where, this, that), emit


def _cast(pairs: dict[Any, Any]) -> Any:
    @instruction
    def cast(_context, value):
        target = pairs[value]

        def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
            return builder.bitcast(values[0], context.get_value_type(target))

        return target(value), emit

    return cast


bits = _cast({types.float32: types.uint32, floats: uints})
number = _cast({types.uint32: types.float32, uints: floats})


def _across(join: Callable[[Any, Any, Any], Any]) -> Any:
    """Fold a vector's upper half onto its lower half until one number is left."""

    @instruction
    def reduce(_context, vector):
        def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
            (value,) = values
            half = LANES // 2
            while half:
                nothing = ir.Constant(value.type, ir.Undefined)
                kind = ir.VectorType(_i32, half)
                lower = ir.Constant(kind, list(range(half)))
                upper = ir.Constant(kind, list(range(half, 2 * half)))
                low, up = (builder.shuffle_vector(value, nothing, part) for part in (lower, upper))
                value = join(builder, low, up)
                half //= 2
            return builder.extract_element(value, _i32(0))

        return types.float32(floats), emit

    return reduce


total = _across(lambda builder, a, b: builder.fadd(a, b))
highest = _across(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
