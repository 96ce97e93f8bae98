"""Matrix products in bfloat16 by AMX, a processor extension with two-dimensional registers (tiles).

A tile has 16 rows of 16 words, each two bfloat16 numbers, or of 16 float32 sums. One instruction
(tdpbf16ps) adds the product of two tiles to a third, which is 16 · 16 · 32 multiply-adds. 16 steps
of 16 columns of a panel are a tile of B; a block of A is copied tile by tile.
Measured on one thread of an Intel Xeon (Emerald Rapids): 2,500 GFLOP/s of this instruction alone.
"""

import ctypes
import logging
import sys
from functools import cache
from typing import Any

import numpy as np

from pellucid.kernels.backend import bfloat16
from pellucid.kernels.backend.compile import empty, inner, instruction
from pellucid.kernels.backend.llvm import ir
from pellucid.kernels.backend.machine_code import FEATURES, call_named
from pellucid.kernels.backend.simd import WIDTH, address_of, transpose
from pellucid.kernels.backend.tile import PRODUCT

SIDE = 16
"""Rows of a tile, and words or sums in each."""
ROWS = 2 * SIDE
_C, _A, _B = ((0, 1), (2, 3)), (4, 5), (6, 7)  # the tiles of C's two rows, of A and of B
_void, _byte, _i32, _i64 = ir.VoidType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_log = logging.getLogger(__name__)
_ARCH_PRCTL, _ASK, _TILES = 158, 0x1023, 18  # ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA


@cache
def available() -> bool:
    """Return whether this processor has AMX for bfloat16 and Linux permits its use.

    A process must ask Linux first, because tiles make the saved state of a thread 8 KB larger.
    Linux refuses if a thread has a signal stack that is too small for that.
    """
    if not (bfloat16.AVAILABLE and {"+amx-tile", "+amx-bf16"} <= FEATURES):
        return False
    if sys.platform != "linux":
        return False
    allowed = int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK, _TILES)) == 0
    if not allowed:
        _log.warning("Linux refuses AMX to this process: bfloat16 is slower than float32 without")
    return allowed


def _tile(builder: Any, name: str, *values: Any) -> None:
    """Emit an x86 tile instruction."""
    call_named(builder, f"llvm.x86.{name}", _void, *values)


def _move(builder: Any, name: str, tile: int, address: Any, step: Any) -> None:
    """Emit a load or store of a tile whose rows are `step` floats apart."""
    _tile(builder, name, _byte(tile), address, builder.mul(step, _i64(4)))


@instruction("void", "i8", "i8")
def _configure(builder, upper, lower):
    """Set the number of rows (at least 1) of the upper and lower tiles of C and A."""
    with builder.goto_entry_block():
        memory = builder.alloca(ir.ArrayType(_i32, SIDE))
    rows = [upper, upper, lower, lower, upper, lower, _i64(SIDE), _i64(SIDE)]
    of_rows = _i64(0)
    for tile, count in enumerate(rows):
        of_rows = builder.or_(of_rows, builder.shl(count, _i64(8 * tile)))
    bytes_ = [64 * 0x10001] * 4  # of a row, 16 bits for each tile
    words = [1, 0, 0, 0, *bytes_, 0, 0, 0, 0, 0, 0, 0, 0]
    for i, word in enumerate(words):
        builder.store(_i32(word), builder.gep(memory, [_i32(0), _i32(i)]))
    place = builder.gep(memory, [_i32(0), _i32(12)])
    builder.store(of_rows, builder.bitcast(place, _i64.as_pointer()), align=4)
    _tile(builder, "ldtilecfg", builder.bitcast(memory, _byte.as_pointer()))


@instruction("void")
def _release(builder):
    """Mark the tiles as unused, so that Linux need not save them."""
    _tile(builder, "tilerelease")


def _block(rows: int) -> tuple[Any, Any, Any]:
    """Return the instructions that start, continue and end a block of C of one or two tile rows."""

    def places(builder: Any, address: Any, step: Any) -> list[tuple[int, Any]]:
        down = builder.mul(step, _i64(4 * SIDE))
        at = [builder.gep(address, [builder.mul(down, _i64(i))]) for i in range(rows)]
        cells = [(i, j) for i in range(rows) for j in range(2)]
        return [(_C[i][j], builder.gep(at[i], [_i64(64 * j)])) for i, j in cells]

    @instruction("void", "p8", "i8")
    def start(builder, d, d_row):
        adds = builder.icmp_unsigned("!=", d, ir.Constant(d.type, None))
        with builder.if_else(adds) as (adding, fresh):
            with adding:
                for tile, place in places(builder, d, d_row):
                    _move(builder, "tileloadd64", tile, place, d_row)
            with fresh:
                for tile, _ in places(builder, d, d_row):
                    _tile(builder, "tilezero", _byte(tile))

    @instruction("void", "p8", "i8", "p8", "i8")
    def step(builder, a, a_row, b, b_row):
        down = builder.mul(a_row, _i64(4 * SIDE))
        for i in range(rows):
            at = builder.gep(a, [builder.mul(down, _i64(i))])
            _move(builder, "tileloadd64", _A[i], at, _i64(SIDE))
        for j in range(2):
            _move(builder, "tileloadd64", _B[j], builder.gep(b, [_i64(64 * j)]), b_row)
        for i in range(rows):
            for j in range(2):
                _tile(builder, "tdpbf16ps", _byte(_C[i][j]), _byte(_A[i]), _byte(_B[j]))

    @instruction("void", "p8", "i8")
    def end(builder, c, c_row):
        for tile, place in places(builder, c, c_row):
            _move(builder, "tilestored64", tile, place, c_row)

    return start, step, end


_start, _step, _end = _block(2)
_start_upper, _step_upper, _end_upper = _block(1)


@inner(signature=PRODUCT)
def product(m, n, k, a, row_step, k_step, b, b_row, c, c_row, d, d_row):
    """Compute C = A · B + D in bfloat16 with AMX tiles; D at address 0: C = A · B.

    A is packed by `block`; n is a multiple of WIDTH, and k, which counts words, of SIDE.
    Unlike in `bfloat16.product`, sums start from D, whose denormals become zero.
    """
    configured = 0
    for row in range(0, m, ROWS):
        height = min(ROWS, m - row)
        if height != configured:
            _configure(min(height, SIDE), max(height - SIDE, 1))
            configured = height
        a_at, c_at = a + 4 * row * row_step, c + 4 * row * c_row
        for j in range(0, n, WIDTH):
            d_from = d + 4 * (row * d_row + j) if d else d
            if height > SIDE:
                _start(d_from, d_row)
                for l in range(0, k, SIDE):  # noqa: E741
                    _step(a_at + 4 * l * k_step, row_step, b + 4 * (l * b_row + j), b_row)
                _end(c_at + 4 * j, c_row)
            else:
                _start_upper(d_from, d_row)
                for l in range(0, k, SIDE):  # noqa: E741
                    _step_upper(a_at + 4 * l * k_step, row_step, b + 4 * (l * b_row + j), b_row)
                _end_upper(c_at + 4 * j, c_row)
    _release()


@inner()
def block(a, at, a_row, a_step, transposed, height, depth, copy):
    """Round a block of A to bfloat16 and store it tile by tile, all tiles of the upper rows first.

    Arguments and result are those of `bfloat16.block`.
    """
    tiles = (depth + bfloat16.WHOLE - 1) // bfloat16.WHOLE
    if transposed:
        across = copy.shape[1]
        words = empty((SIDE, across), np.float32)
        for tile in range(tiles):
            first = tile * bfloat16.WHOLE
            bfloat16.round_across(
                a, at + first * a_step, a_step, depth - first, height, words, 0, across,
                SIDE, height,
            )  # fmt: skip
            for i in range(0, height, SIDE):
                to = (i * tiles + tile * SIDE) * SIDE
                transpose(words, i, across, SIDE, SIDE, copy, to, SIDE)
    else:
        for i in range(height):
            to = (i // SIDE * SIDE * tiles + i % SIDE) * SIDE
            bfloat16.round_row(address_of(a, at + i * a_row), depth, copy, to, SIDE * SIDE)
    return address_of(copy, 0), tiles * SIDE, SIDE
