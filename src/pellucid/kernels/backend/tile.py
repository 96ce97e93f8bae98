"""The small matrix product that the kernels share: C = A B or D + A B, blocked for registers.

Why not BLAS? Attention multiplies matrices of 10 to 60 rows, for which a call takes as long as the
product. Why not a triple loop? A compiler does not keep a block of C in registers, so that every
multiply-add loads and stores (a quarter of the speed). Here a block of up to ROWS × 2 vectors of C
stays in registers in the loop over k; each step loads two vectors of B and one number of A per row.
The block is written as LLVM vector instructions, which become AVX2 or AVX-512 instructions.
Measured: 140-175 GFLOP/s on one thread at 50 × 64 × 32, where BLAS reaches 170-215 on large ones.

The rows of B and C are a multiple of LANES floats long (`padded`); A may have any strides, so that
a transposed A needs no copy.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pellucid.kernels.backend.compile import EXACT, inner, instruction
from pellucid.kernels.backend.llvm import ir
from pellucid.kernels.backend.machine_code import call_named
from pellucid.kernels.backend.simd import (
    LANES,
    address_of,
    floats,
    load,
    nowhere,
    select,
    spread,
    store,
)

# With 32 registers 16 hold C and 2 hold B; with 16 registers 12 hold C, 2 hold B, 1 a number of A.
ROWS = 8 if LANES == 16 else 6

_f = np.float32
_long = ir.IntType(64)
_vec = floats.llvm
PRODUCT = "i8,i8,i8,p8,i8,i8,p8,i8,p8,i8,p8,i8"
"""The types of a product's arguments."""


@inner()
def padded(n: int) -> int:
    """Round n up to a multiple of LANES."""
    return (n + LANES - 1) // LANES * LANES


def _load(builder: Any, pointer: Any, offset: int) -> Any:
    """Emit a load of a vector."""
    at = builder.gep(pointer, [_long(offset)])
    return builder.load(builder.bitcast(at, _vec.as_pointer()), align=4)


def _store(builder: Any, value: Any, pointer: Any, offset: int) -> None:
    """Emit a store of a vector."""
    at = builder.gep(pointer, [_long(offset)])
    builder.store(value, builder.bitcast(at, _vec.as_pointer()), align=4)


def _multiply_add(builder: Any, a: Any, b: Any, sums: Any) -> Any:
    """Emit a b + sums, fused if the processor can."""
    # Without FMA, `llvm.fma` would call the C library for every number; this is two instructions.
    return call_named(builder, f"llvm.fmuladd.v{LANES}f32", _vec, a, b, sums)


def _block(
    width: int, multiply_add: Callable[..., Any], builder: Any, height: int,
    a, row_step, k_step, b, b_row, c, c_row, k, d, d_row,
) -> None:  # fmt: skip
    """Emit the product C[:height, :width·LANES] = (D +) A B of one block, with C in registers."""
    a_rows = [builder.gep(a, [builder.mul(row_step, _long(i))]) for i in range(height)]
    c_rows = [builder.gep(c, [builder.mul(c_row, _long(i))]) for i in range(height)]
    cells = [(i, j) for i in range(height) for j in range(width)]
    zero = ir.Constant(_vec, [0.0] * LANES)
    before = builder.block
    loop, done = builder.append_basic_block("loop"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", k, _long(0)), loop, done)

    builder.position_at_end(loop)
    step = builder.phi(_long)
    sums = [builder.phi(_vec) for _ in cells]
    b_now = builder.gep(b, [builder.mul(step, b_row)])
    b_vectors = [_load(builder, b_now, j * LANES) for j in range(width)]
    offset = builder.mul(step, k_step)
    numbers = [spread(builder, builder.load(builder.gep(row, [offset]), align=4)) for row in a_rows]
    new = [
        multiply_add(builder, numbers[i], b_vectors[j], acc)
        for (i, j), acc in zip(cells, sums, strict=True)
    ]
    following = builder.add(step, _long(1))
    step.add_incoming(_long(0), before)
    step.add_incoming(following, loop)
    for acc, after in zip(sums, new, strict=True):
        acc.add_incoming(zero, before)
        acc.add_incoming(after, loop)
    builder.cbranch(builder.icmp_signed("<", following, k), loop, done)

    builder.position_at_end(done)
    results = []
    for after in new:
        result = builder.phi(_vec)
        result.add_incoming(zero, before)
        result.add_incoming(after, loop)
        results.append(result)
    with builder.if_else(builder.icmp_unsigned("!=", d, ir.Constant(d.type, None))) as (
        adding,
        fresh,
    ):
        with adding:
            # D is added at the end, instead of starting from it, which keeps rounding errors small.
            d_rows = [builder.gep(d, [builder.mul(d_row, _long(i))]) for i in range(height)]
            for (i, j), value in zip(cells, results, strict=True):
                was = _load(builder, d_rows[i], j * LANES)
                _store(builder, builder.fadd(was, value), c_rows[i], j * LANES)
        with fresh:
            for (i, j), value in zip(cells, results, strict=True):
                _store(builder, value, c_rows[i], j * LANES)


def call_block(
    builder: Any, name: str, block: Callable[..., None], most: int, height: Any, *values: Any
) -> None:
    """Emit a call of the function `name` that computes a block of 1 to `most` rows.

    `block(builder, rows, *values)` emits the code for a number of rows. The function is never
    inlined, because a kernel has several products and should contain one copy of the code.
    """
    module = builder.module
    if name not in module.globals:
        kinds = [value.type for value in (height, *values)]
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        end = function.append_basic_block("end")
        choice = inside.switch(function.args[0], end)
        for rows in range(1, most + 1):
            case = inside.append_basic_block(f"rows{rows}")
            choice.add_case(_long(rows), case)
            inside.position_at_end(case)
            block(inside, rows, *function.args[1:])
            inside.branch(end)
        inside.position_at_end(end)
        inside.ret_void()
    builder.call(module.globals[name], [height, *values])


def _tile(width: int, name: str, multiply_add: Callable[..., Any]) -> Any:
    """Return the instruction that computes a block of 1 to ROWS rows and `width` vectors."""

    @instruction("void", "i8", "p8", "i8", "i8", "p8", "i8", "p8", "i8", "i8", "p8", "i8")
    def tile(builder, height, a, row_step, k_step, b, b_row, c, c_row, k, d, d_row):
        a, b, c, d = (builder.bitcast(x, ir.FloatType().as_pointer()) for x in (a, b, c, d))
        block = partial(_block, width, multiply_add)
        call_block(builder, f"pellucid_{name}_{width}", block, ROWS, height,
                   a, row_step, k_step, b, b_row, c, c_row, k, d, d_row)  # fmt: skip

    return tile


def product_by(name: str, multiply_add: Callable[..., Any]) -> Any:
    """Return the function that computes C = D + A B with a given multiply-add.

    `multiply_add(builder, a, b, sums)` emits one step for a vector of sums, where a has one number
    of A in every lane, and b is a vector of B.
    """
    narrow, wide = (_tile(width, name, multiply_add) for width in (1, 2))

    def product(m, n, k, a, row_step, k_step, b, b_row, c, c_row, d, d_row):
        """Compute C (m, n) = D (m, n) + A (m, k) B (k, n), or A B if d is `nowhere`.

        n is a multiple of LANES. a, b, c and d are the addresses of the first numbers
        (`simd.address_of`), and steps count floats: A[i, l] is at a + i·row_step + l·k_step,
        B[l, j] at b + l·b_row + j, C[i, j] at c + i·c_row + j, and D as C. D may be C itself, or a
        single row (d_row = 0). Rows are divided evenly among blocks, so that no block has a single
        row unless m is 1.
        """
        blocks = (m + ROWS - 1) // ROWS
        row = 0
        for block in range(blocks):
            height = (m - row + blocks - block - 1) // (blocks - block)
            a_row, c_to = a + 4 * row * row_step, c + 4 * row * c_row
            j = 0
            while j + 2 * LANES <= n:
                d_at = d + 4 * (row * d_row + j) if d else d
                wide(height, a_row, row_step, k_step, b + 4 * j, b_row, c_to + 4 * j, c_row, k,
                     d_at, d_row)  # fmt: skip
                j += 2 * LANES
            if j < n:
                d_at = d + 4 * (row * d_row + j) if d else d
                narrow(height, a_row, row_step, k_step, b + 4 * j, b_row, c_to + 4 * j, c_row, k,
                       d_at, d_row)  # fmt: skip
            row += height

    product.__qualname__ = name
    return inner(signature=PRODUCT)(product)


product = product_by("product", _multiply_add)


@inner(EXACT, signature="i8,i8,i8,p8,i8,i8,p8,i8,f4[:,:],i8,i8,f4[:,::1],i8,f4[:,::1]")
def add_product(m, n, k, a, row_step, k_step, b, b_row, c, c_at, c_row, low, low_at, part):
    """Compute C += A B, as `product`, with compensated summation if `low` is not empty.

    `low` (…, n) accumulates the rounding errors of the additions to C, without which a sum of
    thousands of blocks loses two digits; the caller adds it to C in the end. C[i, j] is at offset
    c_at + i·c_row + j of c, and `low` begins at low_at. `part` (…, n) is a temporary array.
    Source: Knuth, The Art of Computer Programming 2, 4.2.2 (exact error of an addition).
    """
    if not low.size:
        to = address_of(c, c_at)
        product(m, n, k, a, row_step, k_step, b, b_row, to, c_row, to, c_row)
        return
    step = part.shape[1]
    product(m, n, k, a, row_step, k_step, b, b_row, address_of(part, 0), step, nowhere(), 0)
    for i in range(m):
        for j in range(0, n, LANES):
            at, low_j = c_at + i * c_row + j, low_at + i * low.shape[1] + j
            x, y = load(c, at), load(part, i * step + j)
            sum_ = x + y
            of_y = sum_ - x
            lost = (x - (sum_ - of_y)) + (y - of_y)
            store(c, at, sum_)
            finite = select(lost == lost, lost, _f(0.0))  # NaN, from inf − inf, is ignored
            store(low, low_j, load(low, low_j) + finite)
