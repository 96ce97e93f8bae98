"""Run kernels for a processor with AVX-512 on one that does not have it.

    NUMBA_CPU_NAME=… NUMBA_CPU_FEATURES=… python -m pytest -p wide_vectors tests/kernels

Their LLVM text is made and optimised for the named processor, the machine code for this one: LLVM
splits a vector of 16 numbers into two of 8. Only the products of int8 and bfloat16 by missing
instructions have to be replaced by functions, below. Those for AMX keep the tiles in memory, and
are right on one thread only (PELLUCID_THREADS=1).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from pellucid.kernels.backend import amx, machine_code


def _neighbours(lanes: int) -> str:
    """Return the LLVM function that adds neighbours: 2 · lanes numbers become `lanes`."""
    both = f"<{2 * lanes} x i32>"
    halves = ""
    for first in (0, 1):
        every_second = ", ".join(f"i32 {i}" for i in range(first, 2 * lanes, 2))
        halves += (
            f"  %v{first} = shufflevector {both} %v, {both} poison,"
            f" <{lanes} x i32> <{every_second}>\n"
        )
    return (
        f"define <{lanes} x i32> @wide.sum.{lanes}({both} %v) alwaysinline {{\n{halves}"
        f"  %sum = add <{lanes} x i32> %v0, %v1\n  ret <{lanes} x i32> %sum\n}}\n"
    )


def _dots(lanes: int) -> str:
    """Return the LLVM function for vpdpbusd.

    It adds to each sum four products of an unsigned and a signed byte.
    """
    sums, bytes_, wide = (f"<{n} x {kind}>" for n, kind in
                          ((lanes, "i32"), (4 * lanes, "i8"), (4 * lanes, "i32")))  # fmt: skip
    return f"""
define {sums} @wide.vpdpbusd.{32 * lanes}({sums} %sums, {sums} %x, {sums} %w) alwaysinline {{
  %x.bytes = bitcast {sums} %x to {bytes_}
  %w.bytes = bitcast {sums} %w to {bytes_}
  %x.wide = zext {bytes_} %x.bytes to {wide}
  %w.wide = sext {bytes_} %w.bytes to {wide}
  %products = mul {wide} %x.wide, %w.wide
  %twos = call <{2 * lanes} x i32> @wide.sum.{2 * lanes}({wide} %products)
  %fours = call {sums} @wide.sum.{lanes}(<{2 * lanes} x i32> %twos)
  %added = add {sums} %sums, %fours
  ret {sums} %added
}}
"""


_PAIRS = """
declare <32 x i32> @llvm.smax.v32i32(<32 x i32>, <32 x i32>)
declare <32 x i32> @llvm.smin.v32i32(<32 x i32>, <32 x i32>)

define <32 x i16> @wide.pmaddubs.w.512(<64 x i8> %x, <64 x i8> %w) alwaysinline {
  %x.wide = zext <64 x i8> %x to <64 x i32>
  %w.wide = sext <64 x i8> %w to <64 x i32>
  %products = mul <64 x i32> %x.wide, %w.wide
  %twos = call <32 x i32> @wide.sum.32(<64 x i32> %products)
  %low = call <32 x i32> @llvm.smax.v32i32(<32 x i32> %twos, <32 x i32> splat (i32 -32768))
  %held = call <32 x i32> @llvm.smin.v32i32(<32 x i32> %low, <32 x i32> splat (i32 32767))
  %short = trunc <32 x i32> %held to <32 x i16>
  ret <32 x i16> %short
}

define <16 x i32> @wide.pmaddw.d.512(<32 x i16> %x, <32 x i16> %w) alwaysinline {
  %x.wide = sext <32 x i16> %x to <32 x i32>
  %w.wide = sext <32 x i16> %w to <32 x i32>
  %products = mul <32 x i32> %x.wide, %w.wide
  %twos = call <16 x i32> @wide.sum.16(<32 x i32> %products)
  ret <16 x i32> %twos
}
"""
_every_second = ", ".join(f"i32 {i}" for i in range(0, 32, 2))
_other = ", ".join(f"i32 {i}" for i in range(1, 32, 2))
_ROUNDED = f"""
define <16 x i16> @wide.round(<16 x float> %x) alwaysinline {{
  %bits = bitcast <16 x float> %x to <16 x i32>
  %high = lshr <16 x i32> %bits, splat (i32 16)
  %odd = and <16 x i32> %high, splat (i32 1)
  %half = add <16 x i32> %odd, splat (i32 32767)
  %sum = add <16 x i32> %bits, %half
  %even = lshr <16 x i32> %sum, splat (i32 16)
  %quiet = or <16 x i32> %high, splat (i32 64)
  %nan = fcmp uno <16 x float> %x, %x
  %rounded = select <16 x i1> %nan, <16 x i32> %quiet, <16 x i32> %even
  %short = trunc <16 x i32> %rounded to <16 x i16>
  ret <16 x i16> %short
}}

define <32 x bfloat> @wide.cvtne2ps2bf16.512(<16 x float> %high, <16 x float> %low) alwaysinline {{
  %low.rounded = call <16 x i16> @wide.round(<16 x float> %low)
  %high.rounded = call <16 x i16> @wide.round(<16 x float> %high)
  %both = shufflevector <16 x i16> %low.rounded, <16 x i16> %high.rounded,
    <32 x i32> <{", ".join(f"i32 {i}" for i in range(32))}>
  %numbers = bitcast <32 x i16> %both to <32 x bfloat>
  ret <32 x bfloat> %numbers
}}

define <16 x float> @wide.dpbf16ps.512(
  <16 x float> %sums, <32 x bfloat> %x, <32 x bfloat> %w
) alwaysinline {{
  %x.wide = fpext <32 x bfloat> %x to <32 x float>
  %w.wide = fpext <32 x bfloat> %w to <32 x float>
  %products = fmul <32 x float> %x.wide, %w.wide
  %first = shufflevector <32 x float> %products, <32 x float> poison, <16 x i32> <{_every_second}>
  %second = shufflevector <32 x float> %products, <32 x float> poison, <16 x i32> <{_other}>
  %one = fadd <16 x float> %sums, %first
  %sum = fadd <16 x float> %one, %second
  ret <16 x float> %sum
}}
"""


def _of_rows(head: str, first: str, body: str) -> str:
    """Return an LLVM function that runs `first`, then `body` for every row of tile %t."""
    return f"""
define void {head} alwaysinline {{
entry:
  %tile = getelementptr [8 x [16 x <16 x i32>]], ptr @wide.tiles, i64 0, i8 %t
  %counted = getelementptr [8 x i8], ptr @wide.rows, i64 0, i8 %t
  %count = load i8, ptr %counted
  %rows = zext i8 %count to i64
{first}  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %row = getelementptr [16 x <16 x i32>], ptr %tile, i64 0, i64 %i
{body}  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %rows
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


_EMPTY = "  store [16 x <16 x i32>] zeroinitializer, ptr %tile\n"
_PLACE = "  %at = mul i64 %i, %step\n  %place = getelementptr i8, ptr %p, i64 %at\n"
_READ = f"""{_PLACE}  %read = load <16 x i32>, ptr %place, align 1
  store <16 x i32> %read, ptr %row
"""
_WRITE = f"""{_PLACE}  %written = load <16 x i32>, ptr %row
  store <16 x i32> %written, ptr %place, align 1
"""
_FACTORS = "".join(
    f"  %{name}.tile = getelementptr [8 x [16 x <16 x i32>]], ptr @wide.tiles, i64 0, i8 %{name}\n"
    for name in "xw"
)
_STEPS = "".join(
    f"""  %x.place.{k} = getelementptr [16 x [16 x i32]], ptr %x.tile, i64 0, i64 %i, i64 {k}
  %x.word.{k} = load i32, ptr %x.place.{k}
  %x.one.{k} = insertelement <16 x i32> poison, i32 %x.word.{k}, i64 0
  %x.all.{k} = shufflevector <16 x i32> %x.one.{k}, <16 x i32> poison, <16 x i32> zeroinitializer
  %x.{k} = bitcast <16 x i32> %x.all.{k} to <32 x bfloat>
  %w.place.{k} = getelementptr [16 x <16 x i32>], ptr %w.tile, i64 0, i64 {k}
  %w.words.{k} = load <16 x i32>, ptr %w.place.{k}
  %w.{k} = bitcast <16 x i32> %w.words.{k} to <32 x bfloat>
  %sums.{k} = load <16 x float>, ptr %row
  %sum.{k} = call <16 x float> @wide.dpbf16ps.512(
    <16 x float> %sums.{k}, <32 x bfloat> %x.{k}, <32 x bfloat> %w.{k})
  store <16 x float> %sum.{k}, ptr %row
"""
    for k in range(16)
)
_TILES = f"""
@wide.tiles = internal global [8 x [16 x <16 x i32>]] zeroinitializer
@wide.rows = internal global [8 x i8] zeroinitializer

define void @wide.ldtilecfg(ptr %settings) alwaysinline {{
  %from = getelementptr i8, ptr %settings, i64 48
  %counts = load i64, ptr %from, align 1
  store i64 %counts, ptr @wide.rows, align 1
  ret void
}}

define void @wide.tilerelease() alwaysinline {{
  store i64 0, ptr @wide.rows, align 1
  ret void
}}
{_of_rows("@wide.tilezero(i8 %t)", _EMPTY, "")}
{_of_rows("@wide.tileloadd64(i8 %t, ptr %p, i64 %step)", _EMPTY, _READ)}
{_of_rows("@wide.tilestored64(i8 %t, ptr %p, i64 %step)", "", _WRITE)}
{_of_rows("@wide.tdpbf16ps(i8 %t, i8 %x, i8 %w)", _FACTORS, _STEPS)}
"""
INSTRUCTIONS = (
    "avx512.vpdpbusd.256", "avx512.vpdpbusd.512", "avx512.pmaddubs.w.512", "avx512.pmaddw.d.512",
    "avx512bf16.cvtne2ps2bf16.512", "avx512bf16.dpbf16ps.512", "ldtilecfg", "tilerelease",
    "tilezero", "tileloadd64", "tilestored64", "tdpbf16ps",
)  # fmt: skip
WRITTEN_OUT = "".join(
    [*map(_neighbours, (8, 16, 32)), _dots(8), _dots(16), _PAIRS, _ROUNDED, _TILES]
)


def written_out(text: str) -> str:
    """Replace missing instructions in a module by calls of functions defined in it."""
    for name in INSTRUCTIONS:
        own = re.sub(r"avx512(bf16)?\.", "", name)
        text = text.replace(f"@llvm.x86.{name}(", f"@wide.{own}(")
    if "@wide." not in text:
        return text
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "declare" not in line or "@wide." not in line) + (
        WRITTEN_OUT
    )


def install() -> None:
    """Make Numba compile for this processor if it lacks features of the named one."""
    here = llvm.get_host_cpu_features()
    if all(here.get(one[1:]) for one in machine_code.FEATURES if one.startswith("+")):
        return
    if "+amx-tile" in machine_code.FEATURES:
        amx.available = lambda: True  # type: ignore[assignment]
    named, compiled = machine_code._machine, machine_code.compiled
    named()  # LLVM knows no processor before it
    this = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=here.flatten(),
        opt=3, jit=True, codemodel="jitdefault", reloc="static",
    )  # fmt: skip

    def compile_here(module: Any, more: str = "") -> bytes:
        machine_code._machine = cache(lambda: this)
        try:
            return compiled(llvm.parse_assembly(written_out(str(module))), more)
        finally:
            machine_code._machine = named

    machine_code.compiled = compile_here


install()
