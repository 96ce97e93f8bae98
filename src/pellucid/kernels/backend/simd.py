"""Vectors of numbers inside a kernel: what `x + y` means when x fills a register.

A compiler vectorises a loop of 10,000 steps well and one of 50 badly (checks before it, a scalar
rest after it, sums and maxima across lanes). Attention is made of the short ones. So here are three
types for Numba, LANES floats, LANES 32-bit integers and LANES booleans, with the usual operators; a
plain number on one side means a vector full of it. A function written with operators and
`select` works on numbers and on vectors alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
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


_NUMBERS = {types.float32: (types.float32, types.float64, types.int64)}
"""What may be on the other side of a vector of them, rounded to its kind."""


def _define(op: Callable[..., Any], vector: _Vector, emit: str, result: _Vector, *how: str) -> None:
    """Let `op` work between two vectors, and between a vector and a number."""
    numbers = _NUMBERS.get(vector.element, (vector.element,))
    pairs = [(vector, vector), *((vector, x) for x in numbers), *((x, vector) for x in numbers)]

    class _Typing(ConcreteTemplate):
        key = op
        cases = [signature(result, *pair) for pair in pairs]  # noqa: RUF012

    infer_global(op)(_Typing)

    def lower(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        sides = (
            value
            if kind == vector
            else spread(builder, context.cast(builder, value, kind, vector.element))
            for kind, value in zip(sig.args, values, strict=True)
        )
        return getattr(builder, emit)(*how, *sides)

    for pair in pairs:
        lower_builtin(op, *pair)(lower)


_define(operator.add, floats, "fadd", floats)
_define(operator.sub, floats, "fsub", floats)
_define(operator.mul, floats, "fmul", floats)
_define(operator.truediv, floats, "fdiv", floats)
for _op, _sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "==")):
    _define(getattr(operator, _op), floats, "fcmp_ordered", truths, _sign)
_define(operator.ne, floats, "fcmp_unordered", truths, "!=")
_define(operator.and_, truths, "and_", truths)
_define(operator.or_, truths, "or_", truths)
_define(operator.add, uints, "add", uints)
_define(operator.mul, uints, "mul", uints)
_define(operator.xor, uints, "xor", uints)
_define(operator.rshift, uints, "lshr", uints)
_define(operator.lshift, uints, "shl", uints)
_define(operator.and_, uints, "and_", uints)
_define(operator.or_, uints, "or_", uints)
_define(operator.ge, uints, "icmp_unsigned", truths, ">=")


def _define_unary(op: Callable[..., Any], vector: _Vector, emit: str) -> None:
    class _Typing(ConcreteTemplate):
        key = op
        cases = [signature(vector, vector)]  # noqa: RUF012

    infer_global(op)(_Typing)
    lower_builtin(op, vector)(
        lambda _context, builder, _sig, values: getattr(builder, emit)(*values)
    )


_define_unary(operator.neg, floats, "fneg")
_define_unary(operator.invert, truths, "not_")


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    return builder.gep(make_array(kind)(context, builder, array).data, [at])


@instruction
def load(_context, array, at):
    """Read LANES floats from the `at`-th after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        place = _pointer(context, builder, sig.args[0], *values)
        return builder.load(builder.bitcast(place, floats.llvm.as_pointer()), align=4)

    return floats(array, types.intp), emit


@instruction
def store(_context, array, at, value):
    """Write LANES floats to the `at`-th after an array's first, for any strides."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        place = _pointer(context, builder, sig.args[0], *values[:2])
        builder.store(values[2], builder.bitcast(place, floats.llvm.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, floats), emit


_byte = ir.IntType(8)


def _some(builder: Any, kind: Any, address: Any, count: Any) -> Any:
    """Emit a load of the first `count` of LANES numbers, zeros behind them."""
    lanes = ir.Constant(uints.llvm, list(range(LANES)))
    wanted = builder.icmp_signed("<", lanes, spread(builder, builder.trunc(count, _i32)))
    pointer = builder.inttoptr(address, kind.as_pointer())
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(kind, [kind.as_pointer(), _i32, wanted.type, kind]),
        f"llvm.masked.load.v{LANES}{'f32' if kind == floats.llvm else 'i8'}.p0",
    )
    return builder.call(function, [pointer, _i32(1), wanted, ir.Constant(kind, None)])


@instruction
def load_from(_context, address, count):
    """Read LANES floats at an address; only the first `count`, and zeros, if there are fewer."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return _read(builder, floats.llvm, *values)

    return floats(types.intp, types.intp), emit


@instruction
def truths_from(_context, address, count):
    """Read which of LANES bytes at an address are not 0; only the first `count`."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        kind = ir.VectorType(_byte, LANES)
        return builder.icmp_unsigned("!=", _read(builder, kind, *values), ir.Constant(kind, None))

    return truths(types.intp, types.intp), emit


def _read(builder: Any, kind: Any, address: Any, count: Any) -> Any:
    whole = builder.icmp_signed(">=", count, ir.Constant(count.type, LANES))
    with builder.if_else(whole) as (then, otherwise):
        with then:
            full = builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)
            from_full = builder.block
        with otherwise:
            part = _some(builder, kind, address, count)
            from_part = builder.block
    result = builder.phi(kind)
    result.add_incoming(full, from_full)
    result.add_incoming(part, from_part)
    return result


@instruction
def add_to(_context, address, value):
    """Add LANES floats to those at an address."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        place = builder.inttoptr(values[0], floats.llvm.as_pointer())
        builder.store(builder.fadd(builder.load(place, align=4), values[1]), place, align=4)
        return context.get_dummy_value()

    return types.void(types.intp, floats), emit


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
        place = _pointer(context, builder, sig.args[0], *values[:2])
        builder.store(values[2], place, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), emit


@instruction
def address_of(_context, array, at):
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
def splat(_context, value):
    """A vector with a number in every lane."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return spread(builder, values[0])

    return (uints if value == types.uint32 else floats)(value), emit


@instruction
def iota(_context):
    """0, 1, 2, …: the number of each lane."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return ir.Constant(uints.llvm, list(range(LANES)))

    return uints(), emit


@instruction
def select(_context, condition, this, that):
    """`this` where the condition holds, else `that`; numbers or vectors."""
    result = this if isinstance(this, _Vector) else that

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        condition, *sides = values
        if isinstance(result, _Vector):
            sides = [
                side if isinstance(kind, _Vector) else spread(builder, side)
                for kind, side in zip(sig.args[1:], sides, strict=True)
            ]
        return builder.select(condition, *sides)

    return result(condition, this, that), emit


@instruction
def floats_of(_context, value):
    """A vector of floats from a number of any kind; a vector stays as it is."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        if sig.args[0] == floats:
            return values[0]
        return spread(builder, context.cast(builder, values[0], sig.args[0], types.float32))

    return floats(value), emit


@instruction
def lane_numbers(_context):
    """0, 1, 2, …, as floats."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return ir.Constant(floats.llvm, [float(i) for i in range(LANES)])

    return floats(), emit


def _elementwise(name: str) -> Any:
    """Return LLVM's own function of every float of a vector."""

    @instruction
    def call(_context, x):
        def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
            kind = ir.FunctionType(floats.llvm, [floats.llvm])
            symbol = f"llvm.{name}.v{LANES}f32"
            return builder.call(
                cgutils.get_or_insert_function(builder.module, kind, symbol), values
            )

        return floats(floats), emit

    return call


absolute, floor, sqrt = (_elementwise(name) for name in ("fabs", "floor", "sqrt"))


def _lanes(builder: Any, address: Any, index: Any, kind: Any) -> list[Any]:
    """Emit the places of the index-th numbers after an address; the index is of whole floats."""
    whole = builder.fptosi(index, uints.llvm)
    size = address.type(8 if kind == ir.DoubleType() else 4)
    places = []
    for lane in range(LANES):
        at = builder.zext(builder.extract_element(whole, _i32(lane)), address.type)
        places.append(
            builder.inttoptr(builder.add(address, builder.mul(at, size)), kind.as_pointer())
        )
    return places


@instruction
def number_at(_context, address):
    """Read the float at an address."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return builder.load(builder.inttoptr(values[0], ir.FloatType().as_pointer()), align=4)

    return types.float32(types.intp), emit


@instruction
def add_double(_context, address, value):
    """Add a float to the double at an address."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        place = builder.inttoptr(values[0], ir.DoubleType().as_pointer())
        number = builder.fpext(values[1], ir.DoubleType())
        builder.store(builder.fadd(builder.load(place, align=8), number), place, align=8)
        return context.get_dummy_value()

    return types.void(types.intp, types.float32), emit


@instruction
def gather(_context, address, index):
    """Read floats, the index-th after the one at an address."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        address, index = values
        result = ir.Constant(floats.llvm, ir.Undefined)
        for lane, place in enumerate(_lanes(builder, address, index, ir.FloatType())):
            number = builder.load(place, align=4)
            result = builder.insert_element(result, number, _i32(lane))
        return result

    return floats(types.intp, floats), emit


@instruction
def scatter_add(_context, address, index, value):
    """Add each float to the index-th double after the one at an address, lane after lane."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        address, index, value = values
        for lane, place in enumerate(_lanes(builder, address, index, ir.DoubleType())):
            number = builder.fpext(builder.extract_element(value, _i32(lane)), ir.DoubleType())
            builder.store(builder.fadd(builder.load(place, align=8), number), place, align=8)
        return context.get_dummy_value()

    return types.void(types.intp, floats, floats), emit


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


reduce_add = _across(lambda builder, a, b: builder.fadd(a, b))
reduce_max = _across(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
