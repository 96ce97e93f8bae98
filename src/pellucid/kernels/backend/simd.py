"""Vector types for kernels: values that fill a SIMD register, with the usual operators.

A compiler vectorises a loop of 10,000 steps well, but one of 50 steps badly (because of checks
before it, a scalar rest after it, and sums and maxima across lanes). Attention consists of short
loops. So this module defines four types for Numba: LANES floats, LANES 32-bit unsigned integers,
LANES 64-bit integers and LANES booleans. A number as one operand stands for a vector full of it.
Integers combined with floats become floats, and `/` of integers gives floats. A function written
with operators and `select` works on numbers and on vectors.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from pellucid.kernels.backend.compile import inner, instruction
from pellucid.kernels.backend.llvm import ir
from pellucid.kernels.backend.machine_code import FEATURES, call_named

# On Intel's processors LLVM limits the vectors of its own loops to 256 bits, but not explicit ones.
LANES = 16 if "+avx512f" in FEATURES else 4 if "+simd128" in FEATURES else 8
VNNI = ("+avx512vnni" if LANES == 16 else "+avxvnni") in FEATURES
PAIRS = not VNNI and ("+avx512bw" if LANES == 16 else "+avx2") in FEATURES
"""Whether products of 8-bit integers multiply pairs; see `int8`."""
WIDTH = 2 * LANES
"""Columns of a panel, the part of a matrix that one pass of a product reads."""

_i32, _i64 = ir.IntType(32), ir.IntType(64)


class Vector(NamedTuple):
    """A vector type: LANES numbers of one type, with its LLVM type and its element's name."""

    llvm: Any
    element: str
    numbers: tuple[str, ...]
    """Types of numbers allowed as the other operand; they are rounded to this type."""

    def __str__(self) -> str:
        return f"{self.element}x{LANES}"


def _vector(llvm: Any, element: str, *others: str) -> Vector:
    """Make a vector type of an element's LLVM type and name, and of other number operands."""
    return Vector(ir.VectorType(llvm, LANES), element, (element, *others))


floats = _vector(ir.FloatType(), "float32", "float64", "int64")
uints = _vector(_i32, "uint32")
ints = _vector(_i64, "int64")
"""Places and indices: exact to 2⁶³, where float32 is to 2²⁴."""
truths = _vector(ir.IntType(1), "bool")

OPERATORS: tuple[tuple[Any, Vector, Vector, str, tuple[str, ...]], ...] = (
    (operator.add, floats, floats, "fadd", ()),
    (operator.sub, floats, floats, "fsub", ()),
    (operator.mul, floats, floats, "fmul", ()),
    (operator.truediv, floats, floats, "fdiv", ()),
    (operator.lt, floats, truths, "fcmp_ordered", ("<",)),
    (operator.le, floats, truths, "fcmp_ordered", ("<=",)),
    (operator.gt, floats, truths, "fcmp_ordered", (">",)),
    (operator.ge, floats, truths, "fcmp_ordered", (">=",)),
    (operator.eq, floats, truths, "fcmp_ordered", ("==",)),
    (operator.ne, floats, truths, "fcmp_unordered", ("!=",)),
    (operator.and_, truths, truths, "and_", ()),
    (operator.or_, truths, truths, "or_", ()),
    (operator.add, ints, ints, "add", ()),
    (operator.sub, ints, ints, "sub", ()),
    (operator.mul, ints, ints, "mul", ()),
    (operator.lt, ints, truths, "icmp_signed", ("<",)),
    (operator.le, ints, truths, "icmp_signed", ("<=",)),
    (operator.gt, ints, truths, "icmp_signed", (">",)),
    (operator.ge, ints, truths, "icmp_signed", (">=",)),
    (operator.eq, ints, truths, "icmp_signed", ("==",)),
    (operator.ne, ints, truths, "icmp_signed", ("!=",)),
    (operator.add, uints, uints, "add", ()),
    (operator.mul, uints, uints, "mul", ()),
    (operator.xor, uints, uints, "xor", ()),
    (operator.rshift, uints, uints, "lshr", ()),
    (operator.lshift, uints, uints, "shl", ()),
    (operator.and_, uints, uints, "and_", ()),
    (operator.or_, uints, uints, "or_", ()),
    (operator.ge, uints, truths, "icmp_unsigned", (">=",)),
)
"""For two vectors, or a vector and a number: operand type, result type, how it is emitted."""
UNARY = (
    (operator.neg, floats, "fneg"),
    (operator.neg, ints, "neg"),
    (operator.invert, truths, "not_"),
)


def spread(builder: Any, value: Any) -> Any:
    """Emit a vector with `value` in every lane."""
    kind = ir.VectorType(value.type, LANES)
    nothing = ir.Constant(kind, ir.Undefined)
    zeros = ir.Constant(ir.VectorType(_i32, LANES), [0] * LANES)
    return builder.shuffle_vector(builder.insert_element(nothing, value, _i32(0)), nothing, zeros)


def _pointer(builder: Any, address: Any, kind: Any = floats.llvm) -> Any:
    """Emit an address as a pointer of another type."""
    return builder.bitcast(address, kind.as_pointer())


@instruction(floats, None, "i8")
def load(builder, array, at):
    """Load LANES floats at offset `at` from an array's first float, ignoring strides."""
    place = builder.bitcast(builder.gep(array, [at]), floats.llvm.as_pointer())
    return builder.load(place, align=4)


@instruction("void", None, "i8", floats)
def store(builder, array, at, value):
    """Store LANES floats at offset `at` from an array's first float, ignoring strides."""
    place = builder.bitcast(builder.gep(array, [at]), floats.llvm.as_pointer())
    builder.store(value, place, align=4)


_byte = ir.IntType(8)


def _some(builder: Any, kind: Any, address: Any, count: Any) -> Any:
    """Emit a masked load of the first `count` of LANES numbers, with zeros after them."""
    lanes = ir.Constant(uints.llvm, list(range(LANES)))
    wanted = builder.icmp_signed("<", lanes, spread(builder, builder.trunc(count, _i32)))
    name = f"llvm.masked.load.v{LANES}{'f32' if kind == floats.llvm else 'i8'}.p0"
    zeros = ir.Constant(kind, None)
    return call_named(builder, name, kind, _pointer(builder, address, kind), _i32(1), wanted, zeros)


def _read(builder: Any, kind: Any, address: Any, count: Any) -> Any:
    """Emit a load of LANES numbers, or a masked load if only `count` are left."""
    whole = builder.icmp_signed(">=", count, ir.Constant(count.type, LANES))
    with builder.if_else(whole) as (then, otherwise):
        with then:
            full = builder.load(_pointer(builder, address, kind), align=1)
            from_full = builder.block
        with otherwise:
            part = _some(builder, kind, address, count)
            from_part = builder.block
    result = builder.phi(kind)
    result.add_incoming(full, from_full)
    result.add_incoming(part, from_part)
    return result


@instruction(floats, "p8", "i8")
def load_from(builder, address, count):
    """Load LANES floats at an address, or only the first `count` of them, followed by zeros."""
    return _read(builder, floats.llvm, address, count)


@instruction(truths, "p8", "i8")
def truths_from(builder, address, count):
    """Load LANES bytes at an address as booleans, or only the first `count`, followed by False."""
    kind = ir.VectorType(_byte, LANES)
    read = _read(builder, kind, address, count)
    return builder.icmp_unsigned("!=", read, ir.Constant(kind, None))


@instruction("void", "p8", floats)
def add_to(builder, address, value):
    """Add LANES floats to those in memory at an address."""
    place = _pointer(builder, address)
    builder.store(builder.fadd(builder.load(place, align=4), value), place, align=4)


@instruction(lambda array, at: array.dtype, None, "i8")
def get(builder, array, at):
    """Load the number at offset `at` from an array's first, ignoring strides."""
    return builder.load(builder.gep(array, [at]), align=4)


@instruction("void", None, "i8", lambda array, at, value: array.dtype)
def put(builder, array, at, value):
    """Store a number at offset `at` from an array's first, ignoring strides."""
    builder.store(value, builder.gep(array, [at]), align=4)


@instruction("void", None, "i8", "i8", None, "i8", "i8")
def _transpose(builder, source, at, step, target, to, to_step):
    """Copy LANES × LANES floats, transposed.

    Row i of the source is at offset at + i·step, and row i of the target at to + i·to_step.
    """

    def place(array, first, distance, i):
        here = builder.add(first, builder.mul(distance, first.type(i)))
        return builder.bitcast(builder.gep(array, [here]), floats.llvm.as_pointer())

    rows = [builder.load(place(source, at, step, i), align=4) for i in range(LANES)]
    half = LANES // 2
    while half:  # swap the upper right and lower left quarters of every square of 2 half rows
        lanes = range(LANES)
        upper = [lane if not lane & half else LANES + lane - half for lane in lanes]
        lower = [lane + half if not lane & half else LANES + lane for lane in lanes]
        for i in (i for i in lanes if not i & half):
            pair = rows[i], rows[i + half]
            for row, mask in ((i, upper), (i + half, lower)):
                rows[row] = builder.shuffle_vector(*pair, ir.Constant(uints.llvm, mask))
        half //= 2
    for i, row in enumerate(rows):
        builder.store(row, place(target, to, to_step, i), align=4)


@inner()
def transpose(source, at, step, n, depth, target, to, to_step):
    """Copy a matrix (n, depth) to its transpose (depth, n); steps are distances between rows."""
    if n < LANES or depth < LANES:
        for i in range(n):
            for d in range(depth):
                put(target, to + d * to_step + i, get(source, at + i * step + d))
        return
    for row in range(0, n, LANES):
        for column in range(0, depth, LANES):
            i, d = min(row, n - LANES), min(column, depth - LANES)  # the last ones overlap others
            _transpose(source, at + i * step + d, step, target, to + d * to_step + i, to_step)


@instruction("p8", None, "i8")
def address_of(builder, array, at):
    """Return the address at offset `at` from an array's first number; `address + n` adds n bytes.

    The address does not keep the array alive; the caller must. It is a pointer and not an integer,
    because LLVM may miscompile accesses if it does not know from which array an address comes.
    """
    return _pointer(builder, builder.gep(array, [at]), _byte)


@instruction("p8")
def nowhere(builder):
    """Return the null address, which is false as a condition."""
    return ir.Constant(_byte.as_pointer(), None)


@instruction("void*", "i8", "i8")
def pointer(builder, address, at):
    """Return a pointer `at` bytes after an address that is an integer, for `numba.carray`."""
    return builder.gep(builder.inttoptr(address, _byte.as_pointer()), [at])


@instruction(lambda value: uints if str(value) == "uint32" else floats, None)
def splat(builder, value):
    """Return a vector with a number in every lane."""
    return spread(builder, value)


@instruction(uints)
def iota(builder):
    """Return 0, 1, 2, …, the number of each lane, as unsigned integers."""
    return ir.Constant(uints.llvm, list(range(LANES)))


@instruction(floats)
def lane_numbers(builder):
    """Return 0, 1, 2, …, the number of each lane, as floats."""
    return ir.Constant(floats.llvm, [float(i) for i in range(LANES)])


@instruction(ints)
def lane_places(builder):
    """Return 0, 1, 2, …, the number of each lane, as 64-bit integers."""
    return ir.Constant(ints.llvm, list(range(LANES)))


def _is_vector(value: Any) -> bool:
    return isinstance(value.type, ir.VectorType)


@instruction(lambda condition, this, that: this if "x" in str(this) else that, None, None, None)
def select(builder, condition, this, that):
    """Return `this` where the condition holds, else `that`; for numbers or vectors."""
    if _is_vector(this) or _is_vector(that):
        this, that = (x if _is_vector(x) else spread(builder, x) for x in (this, that))
    return builder.select(condition, this, that)


def vector_of(builder: Any, value: Any, vector: Vector) -> Any:
    """Emit the conversion of a number or vector to a vector type.

    A number must have the vector's element type. A vector of `ints` may become one of floats.
    """
    if not _is_vector(value):
        return spread(builder, value)
    return builder.sitofp(value, vector.llvm) if value.type == ints.llvm != vector.llvm else value


def _common(*kinds: Any) -> Vector:
    """Return the type `ints` if all types are integers (numbers or vectors), else `floats`."""
    whole = (str(kind).removeprefix("Literal[").startswith("int") for kind in kinds)
    return ints if all(whole) else floats


def _taken(kind: Any, vector: Vector) -> Any:
    """Return the type to which an argument is converted before it becomes a vector.

    A vector is kept; a number becomes one of the vector's element type.
    """
    if str(kind) in (str(floats), str(ints)):
        return kind
    return "i8" if vector is ints else "f4"


@instruction(floats, lambda value: _taken(value, floats))
def floats_of(builder, value):
    """Convert a number or a vector to a vector of floats."""
    return vector_of(builder, value, floats)


@instruction(ints, lambda value: _taken(value, _common(value)))
def ints_of(builder, value):
    """Convert a number or a vector to a vector of integers.

    Floats are clipped to 0 … 2²⁴ and truncated; NaN becomes 0.
    """
    if value.type in (ints.llvm, _i64):
        return vector_of(builder, value, ints)
    value, zeros = vector_of(builder, value, floats), ir.Constant(floats.llvm, None)
    largest = ir.Constant(floats.llvm, [2.0**24] * LANES)
    value = builder.select(builder.fcmp_ordered(">", value, zeros), value, zeros)
    value = builder.select(builder.fcmp_ordered("<", value, largest), value, largest)
    return builder.sext(builder.fptosi(value, uints.llvm), ints.llvm)


@instruction(
    lambda condition, x, y: _common(x, y),
    None,
    lambda condition, x, y: _taken(x, _common(x, y)),
    lambda condition, x, y: _taken(y, _common(x, y)),
)
def choose(builder, condition, x, y):
    """Return a vector of x where the condition holds, else y; of integers if both are integers."""
    together = ints if {x.type, y.type} <= {ints.llvm, _i64} else floats
    return builder.select(condition, *(vector_of(builder, z, together) for z in (x, y)))


def _elementwise(name: str, of_ints: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return a function that applies an LLVM function to every lane.

    Integers become floats first, unless `of_ints` emits the function for integers.
    """

    def vector(x: Any) -> Vector:
        return _common(x) if of_ints else floats

    @instruction(vector, lambda x: _taken(x, vector(x)))
    def call(builder, x):
        if of_ints and x.type in (ints.llvm, _i64):
            return of_ints(builder, vector_of(builder, x, ints))
        of_floats = vector_of(builder, x, floats)
        return call_named(builder, f"llvm.{name}.v{LANES}f32", floats.llvm, of_floats)

    return call


def _magnitude(builder: Any, x: Any) -> Any:
    """Emit the absolute value of integers."""
    negative = builder.icmp_signed("<", x, ir.Constant(x.type, None))
    return builder.select(negative, builder.neg(x), x)


absolute = _elementwise("fabs", _magnitude)
floor = _elementwise("floor", lambda _builder, x: x)
sqrt = _elementwise("sqrt")

_float, _double = ir.FloatType(), ir.DoubleType()


def _lanes(builder: Any, address: Any, index: Any, kind: Any) -> list[Any]:
    """Emit the addresses of the numbers at `index`, one for each lane."""
    first = _pointer(builder, address, kind)
    return [builder.gep(first, [builder.extract_element(index, _i32(i))]) for i in range(LANES)]


def _add_double(builder: Any, place: Any, value: Any) -> None:
    """Emit the addition of a float to a double in memory."""
    number = builder.fpext(value, _double)
    builder.store(builder.fadd(builder.load(place, align=8), number), place, align=8)


@instruction("f4", "p8")
def number_at(builder, address):
    """Load the float at an address."""
    return builder.load(_pointer(builder, address, _float), align=4)


@instruction("void", "p8", "f4")
def add_double(builder, address, value):
    """Add a float to the double in memory at an address."""
    _add_double(builder, _pointer(builder, address, _double), value)


@instruction(floats, "p8", ints)
def gather(builder, address, index):
    """Load the floats at `index` from an address, one for each lane."""
    result = ir.Constant(floats.llvm, ir.Undefined)
    for lane, place in enumerate(_lanes(builder, address, index, _float)):
        result = builder.insert_element(result, builder.load(place, align=4), _i32(lane))
    return result


@instruction("void", "p8", ints, floats)
def scatter_add(builder, address, index, value):
    """Add the float of each lane to the double at its `index` from an address, lane after lane."""
    for lane, place in enumerate(_lanes(builder, address, index, _double)):
        _add_double(builder, place, builder.extract_element(value, _i32(lane)))


def _cast(number: str, llvm: Any, vector: Vector) -> Any:
    """Return a function that reinterprets the bits of a number or a vector as another type."""

    @instruction(lambda value: vector if "x" in str(value) else number, None)
    def cast(builder, value):
        return builder.bitcast(value, vector.llvm if _is_vector(value) else llvm)

    return cast


bits = _cast("u4", _i32, uints)
number = _cast("f4", _float, floats)


def _across(join: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a function that reduces a vector to a number, joining its halves repeatedly."""

    @instruction("f4", floats)
    def reduce(builder, value):
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

    return reduce


reduce_add = _across(lambda builder, a, b: builder.fadd(a, b))
reduce_max = _across(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
