"""Parts of one kernel call, taken by several threads without going back to Python.

Between two kernels of a small model there are a few microseconds of work. Waking a thread costs
fifty, and it must have the GIL before it can call anything. So a helping thread waits inside
compiled code, where it holds no GIL, looking at one word of memory; the caller writes there what is
to be done, and both take part after part until none is left. `threads` starts the helpers, and lets
them sleep when nothing has come for a while.

The words, each in a cache line of its own:

    BUSY      1 while a call has the pool; another thread's call meanwhile does its parts alone
    OPEN      the number of the job that may be joined, 0 if none
    INSIDE    how many helpers are with the job
    NEXT      the next part to take
    FAILED    parts that ran out of memory
    CODE, DATA, PARTS    the job: a function, its arguments, how many parts

A helper enters, and then looks whether the job is still open; the caller closes the job, and then
waits until nobody is inside. All of it is sequentially consistent, so a helper that has entered is
either waited for or sees the job closed.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pellucid.kernels.compile import inner, kernel
from pellucid.kernels.simd import instruction

BUSY, OPEN, INSIDE, NEXT, FAILED, CODE, DATA, PARTS, JOBS = range(0, 72, 8)
WORDS = 72
"""How many 64-bit words a pool has."""

_i64 = ir.IntType(64)
_bytes = ir.IntType(8).as_pointer()
_task = ir.FunctionType(_i64, [_bytes, _i64, _i64])
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
def _call(_context, code, data, part, parts):
    """Call a task; 0 if all went well."""

    def emit(_: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
        code, data, part, parts = values
        function = builder.inttoptr(code, _task.as_pointer())
        return builder.call(function, [builder.inttoptr(data, _bytes), part, parts])

    return types.intp(types.intp, types.intp, types.intp, types.intp), emit


def task_of(f: Any) -> Any:
    """Return the instruction that makes a job of f(part, parts, *arguments).

    It takes a tuple of the arguments and gives two addresses: code to call, and where the arguments
    lie, which is good until the kernel returns.
    """

    @instruction
    def task(_context, arguments):
        kinds = (types.intp, types.intp, *arguments.types)
        f.compile(kinds)
        compiled = f.overloads[kinds]

        def emit(context: Any, builder: Any, sig: Any, values: tuple[Any, ...]) -> Any:
            context.active_code_library.add_linking_library(compiled.library)
            members = cgutils.unpack_tuple(builder, values[0])
            block = ir.LiteralStructType([member.type for member in members])
            held = cgutils.alloca_once(builder, block)
            for i, member in enumerate(members):
                builder.store(member, cgutils.gep_inbounds(builder, held, 0, i))
            code = _emit_task(context, builder.module, compiled, block)
            pair = [builder.ptrtoint(code, _i64), builder.ptrtoint(held, _i64)]
            return context.make_tuple(builder, sig.return_type, pair)

        return types.UniTuple(types.intp, 2)(arguments), emit

    return task


def _emit_task(context: Any, module: Any, compiled: Any, block: Any) -> Any:
    name = f"pellucid_task_{compiled.fndesc.mangled_name}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, _task, name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    data, part, parts = function.args
    held = builder.bitcast(data, block.as_pointer())
    arguments = [
        builder.load(cgutils.gep_inbounds(builder, held, 0, i)) for i in range(len(block.elements))
    ]
    status, _ = context.call_internal_no_propagate(
        builder, compiled.fndesc, compiled.signature, [part, parts, *arguments]
    )
    builder.ret(builder.zext(status.is_error, _i64))
    return function


@inner()
def _help(pool):
    """Take parts of the job until none is left."""
    code, data, parts = _get(pool, CODE), _get(pool, DATA), _get(pool, PARTS)
    part = _add(pool, NEXT, 1)
    while part < parts:
        if _call(code, data, part, parts):
            _add(pool, FAILED, 1)
        part = _add(pool, NEXT, 1)


@inner()
def share(pool, parts, task):
    """Do every part of a task (see `task_of`), with the help of whoever waits at `pool`.

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
        _help(pool)
        _set(pool, OPEN, 0)
        while _get(pool, INSIDE) > 0:
            _pause()
        failed = _get(pool, FAILED)
        _set(pool, BUSY, 0)
    else:
        for part in range(parts):
            failed += _call(code, data, part, parts)
    if failed:
        raise MemoryError("a kernel ran out of memory")


@kernel("i8(i8,i8,i8)")
def serve(pool, last, patience):
    """Help with every job but number `last` until none has come for a while; return the last one.

    `patience` counts looks at the pool in which there was nothing to do.
    """
    looks = 0
    while looks < patience:
        job = _get(pool, OPEN)
        if job in (0, last):
            looks += 1
            _pause()
            continue
        _add(pool, INSIDE, 1)
        if _get(pool, OPEN) == job:
            _help(pool)
            last = job
        _add(pool, INSIDE, -1)
        looks = 0
    return last
