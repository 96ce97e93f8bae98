"""Matrix products in int8: y = x Wᵀ + b with int8 weights, and x rounded to int8 row by row.

    q[i, l] = round(x[i, l] · 127 / max|x[i]|)        one scale for each row
    y[i, j] = (Σₗ q[i, l] w[j, l]) · (s[i] t[j]) + b[j]

s[i] = max|x[i]| / 127, t[j] the scale of the weight's row j. The sum is exact in 32 bits (k up to
131,072), so its order does not matter: a row's bits do not depend on other rows or on how the sum
is divided, and are the same on every processor. The operations after the sum have a fixed order.

As in `tile`, ROWS × 2 vectors of sums are in registers, with four numbers along k in each lane. The
extension VNNI multiplies and adds them by one instruction (vpdpbusd), whose first factor is
unsigned: q is stored with 128 added, and the sums start at −128 Σₗ w[j, l]. Without VNNI the signs
of q are moved to w, and |q| w is summed in pairs in 16 bits (2 · 127 · 127 < 2¹⁵, so that nothing
saturates) and then in 32 bits.
"""

from typing import Any

import numpy as np

from pellucid.kernels.backend.compile import inner, instruction
from pellucid.kernels.backend.llvm import ir
from pellucid.kernels.backend.machine_code import call_named
from pellucid.kernels.backend.simd import (
    LANES,
    PAIRS,
    VNNI,
    WIDTH,
    address_of,
    floats,
    load,
    reduce_add,
    reduce_max,
    select,
    splat,
    spread,
)
from pellucid.kernels.backend.tile import call_block

Array = np.ndarray

GROUP = 4  # numbers of k that share a 32-bit lane
STEP = 16  # k is padded to whole steps: four groups
# Sums in registers, and beside them two vectors of weights and what the multiplication needs.
ROWS = 8 if LANES == 16 else 6 if VNNI else 4

_LARGEST = np.float32(127.0)
_ROUND = np.float32(12582912.0)  # 1.5 · 2²³: adding it leaves the nearest integer in the low bits
_TINY = np.float32(1e-30)  # 127 / this is finite
_ZERO = np.float32(0.0)
_EXACT: frozenset[str] = frozenset()

_long, _int, _short, _byte = (ir.IntType(bits) for bits in (64, 32, 16, 8))
_float = ir.FloatType()
_sums, _floats = ir.VectorType(_int, LANES), floats.llvm
_bytes, _shorts = ir.VectorType(_byte, GROUP * LANES), ir.VectorType(_short, 2 * LANES)


# Packing ------------------------------------------------------------------------------------------


def padded(k: int) -> int:
    """Round k up to a multiple of STEP."""
    return -(-k // STEP) * STEP


def panels(weight: Array) -> Array:
    """Pack int8 weights (n, k), from −127 to 127, into panels.

    They are (⌈n / WIDTH⌉, WIDTH · (4 + padded k)) bytes.

    A panel holds −128 Σₗ w[j, l] of each of its columns j in int32, and then, for each group of
    four numbers along k, those of every column.
    """
    n, k = weight.shape
    wide = np.zeros((-(-n // WIDTH) * WIDTH, padded(k)), np.int8)
    wide[:n, :k] = weight
    starts = (-128 * wide.sum(axis=1, dtype=np.int32)).reshape(-1, WIDTH)
    groups = wide.reshape(len(starts), WIDTH, -1, GROUP).transpose(0, 2, 1, 3)
    return np.concatenate(
        [starts.view(np.uint8), groups.reshape(len(starts), -1).view(np.uint8)], axis=1
    )


# Rows of x ----------------------------------------------------------------------------------------


@instruction("void", None, "i8", floats)
def _put_bytes(builder, array, at, vector):
    """Write LANES rounded numbers (see `_ROUND`) as bytes in the form that the product reads."""
    narrow = ir.VectorType(_byte, LANES)
    low = builder.trunc(builder.bitcast(vector, _sums), narrow)
    if VNNI:
        low = builder.xor(low, ir.Constant(narrow, [-128] * LANES))
    builder.store(low, _at(builder, array, at, narrow), align=1)


@inner(_EXACT, signature="f4[:,:],i8,u1[:,::1],f4[::1]")
def round_rows(x, k, bytes_, scales):
    """Round X[:, :k] to int8 in `bytes_` (m, at least padded k).

    Writes the scale of every row.

    X must be zero from column k to the next multiple of LANES. A row with inf or NaN gets the scale
    NaN.
    """
    for i in range(len(x)):
        row, to = i * x.shape[1], i * bytes_.shape[1]
        largest, poison = splat(_ZERO), splat(_ZERO)
        for l in range(0, k, LANES):  # noqa: E741 - as in the equations
            v = load(x, row + l)
            largest = select(v > largest, v, largest)
            largest = select(_ZERO - v > largest, _ZERO - v, largest)
            poison = poison + v * _ZERO
        most = reduce_max(largest)
        factor = _LARGEST / most if most > _TINY else _ZERO
        scales[i] = most / _LARGEST + reduce_add(poison)
        for l in range(0, k, LANES):  # noqa: E741
            _put_bytes(bytes_, to + l, load(x, row + l) * factor + _ROUND)


# One block ----------------------------------------------------------------------------------------


def _dots(builder: Any, sums: Any, x: Any, w: Any) -> Any:
    """Emit sums + Σ x w over the GROUP bytes of each lane; w is signed, x unsigned with VNNI."""
    if VNNI:
        name = f"llvm.x86.avx512.vpdpbusd.{32 * LANES}"
        return call_named(builder, name, _sums, sums, *(builder.bitcast(v, _sums) for v in (x, w)))
    zero = ir.Constant(_bytes, [0] * (GROUP * LANES))
    if PAIRS:
        below = builder.icmp_signed("<", x, zero)
        size = builder.select(below, builder.sub(zero, x), x)
        if LANES == 8:
            w = call_named(builder, "llvm.x86.avx2.psign.b", _bytes, w, x)
        else:
            w = builder.select(below, builder.sub(zero, w), w)
        first, second = (
            ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
            if LANES == 8
            else ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512")
        )
        pairs = call_named(builder, f"llvm.x86.{first}", _shorts, size, w)
        ones = ir.Constant(_shorts, [1] * (2 * LANES))
        return builder.add(sums, call_named(builder, f"llvm.x86.{second}", _sums, pairs, ones))
    wide = ir.VectorType(_int, GROUP * LANES)
    products = builder.mul(builder.sext(x, wide), builder.sext(w, wide))
    for i in range(GROUP):
        kind = ir.VectorType(_int, LANES)
        every = ir.Constant(kind, [GROUP * lane + i for lane in range(LANES)])
        part = builder.shuffle_vector(products, ir.Constant(wide, ir.Undefined), every)
        sums = builder.add(sums, part)
    return sums


def _at(builder: Any, pointer: Any, offset: Any, kind: Any) -> Any:
    """Emit a pointer of a type at an offset."""
    return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer())


def _block(builder: Any, height: int, x, x_row, s, panel, groups, t, b, c, c_row, add) -> None:
    """Emit the product for one block of C: `height` rows of one panel."""
    # With few rows there are few chains of additions, which wait for each other: process several
    # groups at once.
    at_once = 4 if height == 1 else 2 if height == 2 else 1
    cells = [(i, j) for i in range(height) for j in range(2)]
    x_rows = [builder.gep(x, [builder.mul(x_row, _long(i))]) for i in range(height)]
    zero = ir.Constant(_sums, [0] * LANES)
    starts = [
        builder.load(_at(builder, panel, _long(j * 4 * LANES), _sums), align=4) if VNNI else zero
        for j in range(2)
    ]
    before = builder.block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    builder.branch(loop)

    builder.position_at_end(loop)
    group = builder.phi(_long)
    group.add_incoming(_long(0), before)
    sums = []
    for u in range(at_once):
        for _, j in cells:
            phi = builder.phi(_sums)
            phi.add_incoming(starts[j] if u == 0 else zero, before)
            sums.append(phi)
    after = []
    for u in range(at_once):
        now = builder.add(group, _long(u))
        offset = builder.mul(builder.add(now, _long(1)), _long(4 * WIDTH))
        w = [
            builder.load(
                _at(builder, panel, builder.add(offset, _long(j * 4 * LANES)), _bytes), align=4
            )
            for j in range(2)
        ]
        four = builder.mul(now, _long(GROUP))
        numbers = [
            builder.bitcast(
                spread(builder, builder.load(_at(builder, row, four, _int), align=4)), _bytes
            )
            for row in x_rows
        ]
        after += [
            _dots(builder, sums[u * len(cells) + n], numbers[i], w[j])
            for n, (i, j) in enumerate(cells)
        ]
    following = builder.add(group, _long(at_once))
    group.add_incoming(following, loop)
    for phi, value in zip(sums, after, strict=True):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_signed("<", following, groups), loop, done)

    builder.position_at_end(done)
    t_j, b_j = (
        [builder.load(_at(builder, p, _long(j * LANES), _floats), align=4) for j in range(2)]
        for p in (t, b)
    )
    results = []
    for n, (i, j) in enumerate(cells):
        whole = after[n]
        for u in range(1, at_once):
            whole = builder.add(whole, after[u * len(cells) + n])
        s_i = spread(builder, builder.load(builder.gep(s, [_long(i)]), align=4))
        scaled = builder.fmul(builder.sitofp(whole, _floats), builder.fmul(s_i, t_j[j]))
        results.append(builder.fadd(scaled, b_j[j]))
    c_rows = [builder.gep(c, [builder.mul(c_row, _long(i))]) for i in range(height)]
    with builder.if_else(add) as (adding, fresh):
        for case, was in ((adding, True), (fresh, False)):
            with case:
                for (i, j), value in zip(cells, results, strict=True):
                    where = _at(builder, c_rows[i], _long(j * LANES), _floats)
                    if was:
                        value = builder.fadd(builder.load(where, align=4), value)
                    builder.store(value, where, align=4)


@instruction("void", "i8", "p8", "i8", "p8", "p8", "i8", "p8", "p8", "p8", "i8", "b1")
def _tile(builder, height, x, x_row, s, panel, groups, t, b, c, c_row, add):
    """Compute the product for one block of C: 1 to ROWS rows of one panel."""
    s, t, b, c = (builder.bitcast(address, _float.as_pointer()) for address in (s, t, b, c))
    call_block(builder, "pellucid_int8_block", _block, ROWS, height,
               x, x_row, s, panel, groups, t, b, c, c_row, add)  # fmt: skip


@inner(_EXACT, signature="u1[:,::1],f4[::1],i8,u1[:,::1],i8,i8,f4[:,::1],i8,f4[:,:],b1")
def product(x, s, k, packed, at, wide, floats_, b_at, c, add):
    """Compute C[:, : wide · WIDTH] = X Wᵀ + b from rounded rows x and their scales s.

    If `add`, the result is added to C. W is in `wide` panels at offset `at` of `packed`; b is at
    offset `b_at` of `floats_`, followed by the scales of W.
    """
    m = len(c)
    groups = (k + STEP - 1) // STEP * (STEP // GROUP)
    blocks = (m + ROWS - 1) // ROWS
    x_row, c_row = x.shape[1], c.strides[0] // 4
    for panel in range(wide):
        row = 0
        here = at + panel * WIDTH * 4 * (1 + groups)
        b = b_at + panel * WIDTH
        for block in range(blocks):
            height = (m - row + blocks - block - 1) // (blocks - block)
            _tile(height, address_of(x, row * x_row), x_row, address_of(s, row),
                  address_of(packed, here), groups, address_of(floats_, b + wide * WIDTH),
                  address_of(floats_, b), address_of(c, row * c_row + panel * WIDTH), c_row,
                  add)  # fmt: skip
            row += height
