"""Parts of one kernel call, taken by several threads without going back to Python.

Between two kernels of a small model there are a few microseconds of work. Waking a thread costs
fifty, and it must have the GIL before it can call anything. So a helping thread waits inside
compiled code, where it holds no GIL, looking at one word of memory; the caller writes there what is
to be done, and both take part after part until none is left. `threads` starts the workers, and lets
them sleep when nothing has come for a while.

The words, each in a cache line of its own:

    BUSY      1 while a call has the pool; another thread's call meanwhile does its parts alone
    OPEN      the number of the job that may be joined, 0 if none
    INSIDE    how many workers are with the job
    NEXT      the next part to take
    FAILED    parts that ran out of memory
    CODE, DATA, PARTS    the job: a task, what it needs, how many parts

A worker enters, and then looks whether the job is still open; the caller closes the job, and then
waits until nobody is inside. All of it is sequentially consistent, so a worker that has entered is
either waited for or sees the job closed.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pellucid.kernels.backend.compile import inner, kernel
from pellucid.kernels.backend.simd import instruction

BUSY, OPEN, INSIDE, NEXT, FAILED, CODE, DATA, PARTS, JOBS = range(0, 72, 8)
WORDS = 72
"""How many 64-bit words a pool has."""
BETWEEN = 32
"""Moments of waiting between two at which a thread gives way: about a microsecond."""

_i64 = ir.IntType(64)
_bytes = ir.IntType(8).as_pointer()
_task = ir.FunctionType(_i64, [_bytes, _i64])
_FIRST, _PART = 2, 1  # of an LLVM function's arguments, Numba's first; of Numba's, `part`
_POSIX = os.name == "posix"
_X86 = platform.machine().lower() in ("x86_64", "amd64")


def _word(builder: Any, pool: Any, word: Any) -> Any:
    return builder.gep(builder.inttoptr(pool, _i64.as_pointer()), [word])


@instruction
def _get(_context, pool, word):
    def emit(_: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return builder.load_atomic(_word(builder, *values), "seq_cst", align=8)

    return types.intp(pool, word), emit


@instruction
def _set(_context, pool, word, value):
    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        builder.store_atomic(values[2], _word(builder, *values[:2]), "seq_cst", align=8)
        return context.get_dummy_value()

    return types.void(pool, word, types.intp), emit


@instruction
def _add(_context, pool, word, value):
    """Add and return what was there before."""

    def emit(_: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        return builder.atomic_rmw("add", _word(builder, *values[:2]), values[2], "seq_cst")

    return types.intp(pool, word, types.intp), emit


@instruction
def _take(_context, pool, word):
    """Turn a 0 into a 1; return whether it was one."""

    def emit(_: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        result = builder.cmpxchg(_word(builder, *values), _i64(0), _i64(1), "seq_cst", "seq_cst")
        return builder.extract_value(result, 1)

    return types.boolean(pool, word), emit


@instruction
def _pause(_context):
    """Tell the processor that this is a loop that waits."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        if _X86:
            nothing = ir.FunctionType(ir.VoidType(), [])
            name = "llvm.x86.sse2.pause"
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, name), [])
        return context.get_dummy_value()

    return types.void(), emit


@instruction
def _give_way(_context):
    """Let another thread have this processor, if one is waiting for it."""

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        if _POSIX:
            nothing = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), emit


@inner()
def _wait(looks):
    """Wait a moment; `looks` counts the moments before.

    Whoever is waited for may be without a processor, where others work too: it gets this one.
    """
    if looks % BETWEEN == BETWEEN - 1:
        _give_way()
    else:
        _pause()


@instruction
def _call(_context, code, data, part):
    """Do one part of a task; 0 if all went well."""

    def emit(_: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        code, data, part = values
        function = builder.inttoptr(code, _task.as_pointer())
        return builder.call(function, [builder.inttoptr(data, _bytes), part])

    return types.intp(types.intp, types.intp, types.intp), emit


@instruction
def this_call(_context):
    """Return the addresses of a task and of what it needs, which are good until this call returns.

    The task calls the kernel that this stands in, with the arguments of this call but for the
    second, `part`. So a kernel and its task are compiled once, as one function.
    """

    def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        arguments = builder.function.args[_FIRST:]
        block = ir.LiteralStructType([argument.type for argument in arguments])
        held = cgutils.alloca_once(builder, block)
        for i, argument in enumerate(arguments):
            builder.store(argument, cgutils.gep_inbounds(builder, held, 0, i))
        task = _emit_task(builder.module, builder.function, block)
        pair = [builder.ptrtoint(task, _i64), builder.ptrtoint(held, _i64)]
        return context.make_tuple(builder, sig.return_type, pair)

    return types.UniTuple(types.intp, 2)(), emit


def _emit_task(module: Any, kernel: Any, block: Any) -> Any:
    task = ir.Function(module, _task, f"pellucid_task_{kernel.name}")
    task.linkage = "internal"
    builder = ir.IRBuilder(task.append_basic_block("entry"))
    data, part = task.args
    held = builder.bitcast(data, block.as_pointer())
    arguments = [
        part if i == _PART else builder.load(cgutils.gep_inbounds(builder, held, 0, i))
        for i in range(len(block.elements))
    ]
    # Before its arguments, a function of Numba's takes where to put its result and its exception.
    results = [builder.alloca(argument.type.pointee) for argument in kernel.args[:_FIRST]]
    for result in results:
        builder.store(ir.Constant(result.type.pointee, None), result)
    code = builder.call(kernel, [*results, *arguments])
    builder.ret(builder.zext(builder.icmp_signed("!=", code, code.type(0)), _i64))
    return task


@inner()
def _work(pool):
    """Take parts of the job until none is left."""
    code, data, parts = _get(pool, CODE), _get(pool, DATA), _get(pool, PARTS)
    part = _add(pool, NEXT, 1)
    while part < parts:
        if _call(code, data, part):
            _add(pool, FAILED, 1)
        part = _add(pool, NEXT, 1)


@inner()
def share(pool, parts, task):
    """Do every part of a task (see `this_call`), with the help of whoever waits at `pool`.

    `pool` is the address of its words; 0: nobody. Raises `MemoryError` if a part could not be done.
    """
    code, data = task
    failed = 0
    if parts > 1 and pool != 0 and _take(pool, BUSY):
        _set(pool, CODE, code)
        _set(pool, DATA, data)
        _set(pool, PARTS, parts)
        _set(pool, NEXT, 0)
        _set(pool, FAILED, 0)
        _set(pool, OPEN, _add(pool, JOBS, 1) + 1)
        _work(pool)
        _set(pool, OPEN, 0)
        looks = 0
        while _get(pool, INSIDE) > 0:
            _wait(looks)
            looks += 1
        failed = _get(pool, FAILED)
        _set(pool, BUSY, 0)
    else:
        for part in range(parts):
            failed += _call(code, data, part)
    if failed:
        raise MemoryError("a kernel ran out of memory")


@kernel("i8(i8,i8,i8)")
def serve(pool, last, patience):
    """Work on every job but number `last` until none has come for a while; return the last one.

    `patience` counts looks at the pool in which there was nothing to do.
    """
    looks = 0
    while looks < patience:
        job = _get(pool, OPEN)
        if job in (0, last):
            _wait(looks)
            looks += 1
            continue
        _add(pool, INSIDE, 1)
        if _get(pool, OPEN) == job:
            _work(pool)
            last = job
        _add(pool, INSIDE, -1)
        looks = 0
    return last
