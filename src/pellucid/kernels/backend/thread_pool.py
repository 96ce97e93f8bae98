"""The thread pool: workers run the tasks of a kernel call without returning to Python.

Between two kernels of a small model there are a few microseconds. To wake a sleeping thread takes
fifty, and it would need the GIL. So a worker waits inside compiled code, without the GIL, polling
one word of memory. The caller writes a job there, and both take task after task until none is left.
`threads` starts the workers, and lets them sleep when no job has come for a while.

The fields of a pool, each in a separate cache line:

    BUSY      1 while a call uses the pool; calls of other threads then run their tasks alone
    OPEN      the number of the job that workers may join, 0 if none
    INSIDE    the number of workers in the job
    WAITING   1 while the caller sleeps until INSIDE is 0
    NEXT      the next task to take
    FAILED    the number of tasks that ran out of memory
    CODE, DATA, TASKS    the job: addresses of its function and arguments, number of tasks
    JOBS      the number of jobs so far

A worker enters (INSIDE + 1), and then checks that the job is still open; the caller closes the job,
and then waits until INSIDE is 0. All accesses are sequentially consistent, so a worker that has
entered is either waited for or sees that the job is closed.

On a busy machine the system may suspend a worker in the middle of a task, for milliseconds. A
caller that keeps polling would then keep a processor busy that could run the worker. So it polls
for a moment and then sleeps (on Linux by a futex on INSIDE).
"""

import os
import platform
import sys
from typing import Any

from pellucid.kernels.backend.compile import inner, instruction, kernel
from pellucid.kernels.backend.llvm import ir
from pellucid.kernels.backend.machine_code import call_named

BUSY, OPEN, INSIDE, WAITING, NEXT, FAILED, CODE, DATA, TASKS, JOBS = range(0, 80, 8)
WORDS = 80
"""The length of a pool in 64-bit words."""
_POLLS_PER_YIELD = 32  # about a microsecond
_POLLING = 200_000  # nanoseconds that a caller polls: as long as a task

_i32, _i64 = ir.IntType(32), ir.IntType(64)
_bytes = ir.IntType(8).as_pointer()
_run_task = ir.FunctionType(_i64, [_bytes, _i64])
# The first two arguments of a Numba function are the addresses for its result and its exception.
# Of the arguments after them, `task` is the second.
_FIRST, _TASK = 2, 1
_POSIX = os.name == "posix"
_X86 = platform.machine().lower() in ("x86_64", "amd64")
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine() if sys.platform == "linux" else "")
"""The number of Linux's system call; None: a caller only polls."""
_SLEEP, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, for one process
_MONOTONIC = 6 if sys.platform == "darwin" else 1


def _address(builder: Any, pool: Any, field: Any) -> Any:
    """Emit the address of a field of the pool."""
    return builder.gep(builder.inttoptr(pool, _i64.as_pointer()), [field])


def _on_stack(builder: Any, kind: Any) -> Any:
    """Emit the allocation of a value on the stack, in the entry block so that it happens once."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


def _field(builder: Any, block: Any, i: int) -> Any:
    """Emit the address of field i of a structure."""
    return builder.gep(block, [_i32(0), _i32(i)], inbounds=True)


@instruction("i8", "i8", "i8")
def _get(builder, pool, field):
    """Read a field of the pool atomically."""
    return builder.load_atomic(_address(builder, pool, field), "seq_cst", align=8)


@instruction("void", "i8", "i8", "i8")
def _set(builder, pool, field, value):
    """Write a field of the pool atomically."""
    builder.store_atomic(value, _address(builder, pool, field), "seq_cst", align=8)


@instruction("i8", "i8", "i8", "i8")
def _add(builder, pool, field, value):
    """Add to a field of the pool atomically; return its value before."""
    return builder.atomic_rmw("add", _address(builder, pool, field), value, "seq_cst")


@instruction("b1", "i8", "i8")
def _take(builder, pool, field):
    """Change a field from 0 to 1 atomically; return whether it was 0."""
    place = _address(builder, pool, field)
    result = builder.cmpxchg(place, _i64(0), _i64(1), "seq_cst", "seq_cst")
    return builder.extract_value(result, 1)


@instruction("void")
def _pause(builder):
    """Tell the processor that this is a waiting loop."""
    if _X86:
        call_named(builder, "llvm.x86.sse2.pause", ir.VoidType())


@instruction("void")
def _yield(builder):
    """Let another thread run on this processor, if one is ready."""
    if _POSIX:
        call_named(builder, "sched_yield", _i32)


@instruction("i8", "i8")
def _now(builder, polls):
    """Return a time in nanoseconds; without a POSIX clock it is estimated from `polls`."""
    if not _POSIX:
        return builder.mul(polls, _i64(50))
    time = _on_stack(builder, ir.ArrayType(_i64, 2))
    call_named(builder, "clock_gettime", _i32, _i32(_MONOTONIC), time)
    seconds, rest = (builder.load(_field(builder, time, i)) for i in (0, 1))
    return builder.add(builder.mul(seconds, _i64(10**9)), rest)


@instruction("void", "i8", "i8", "i8", "i8")
def _futex(builder, pool, field, operation, value):
    """Sleep while the lower half of a field equals `value`, or wake `value` sleepers (Linux)."""
    if _FUTEX:
        kind = ir.FunctionType(_i64, [_i64], var_arg=True)
        call = builder.module.globals.get("syscall") or ir.Function(builder.module, kind, "syscall")
        where, nothing = _address(builder, pool, field), _i64(0)
        builder.call(call, [_i64(_FUTEX), where, operation, value, nothing, nothing, nothing])


@inner()
def _wait(polls):
    """Wait a moment in a polling loop; `polls` is the number of polls so far.

    Now and then it yields the processor, which the awaited thread may need on a busy machine.
    """
    if polls % _POLLS_PER_YIELD == _POLLS_PER_YIELD - 1:
        _yield()
    else:
        _pause()


@instruction("i8", "i8", "i8", "i8")
def _call(builder, code, data, task):
    """Run one task of a job; return 0 if it succeeded."""
    function = builder.inttoptr(code, _run_task.as_pointer())
    return builder.call(function, [builder.inttoptr(data, _bytes), task])


@instruction(("i8", "i8"), "i8")
def this_call(builder, first):
    """Return a job that calls the kernel which contains this instruction, once for each task.

    The job is the addresses of a function and of its arguments, valid until the kernel returns. The
    function calls the kernel with the same arguments, except that the second, `task`, is the task's
    number counted from `first`. So a kernel and its jobs are compiled once, as one function.
    """
    arguments = [*builder.function.args[_FIRST:], first]
    block = ir.LiteralStructType([argument.type for argument in arguments])
    data = _on_stack(builder, block)
    for i, argument in enumerate(arguments):
        builder.store(argument, _field(builder, data, i))
    code = _emit_run_task(builder.module, builder.function, block)
    job = ir.Constant(ir.ArrayType(_i64, 2), ir.Undefined)
    for i, address in enumerate((code, data)):
        job = builder.insert_value(job, builder.ptrtoint(address, _i64), i)
    return job


def _emit_run_task(module: Any, kernel: Any, block: Any) -> Any:
    """Emit the function f(data, task) that runs one task of a kernel; return it.

    It is emitted once for each kernel. `data` points to a structure of the kernel's arguments. f
    returns 0, or 1 if the kernel failed.
    """
    name = f"pellucid_task_{kernel.name}"
    if name in module.globals:  # the kernel has several stages
        return module.globals[name]
    function = ir.Function(module, _run_task, name)
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    data, task = function.args
    data = builder.bitcast(data, block.as_pointer())
    *arguments, first = (builder.load(_field(builder, data, i)) for i in range(len(block.elements)))
    arguments[_TASK] = builder.add(task, first)
    results = [builder.alloca(argument.type.pointee) for argument in kernel.args[:_FIRST]]
    for result in results:
        builder.store(ir.Constant(result.type.pointee, None), result)
    status = builder.call(kernel, [*results, *arguments])
    builder.ret(builder.zext(builder.icmp_signed("!=", status, status.type(0)), _i64))
    return function


@inner()
def _take_tasks(pool):
    """Take and run tasks of the current job until none is left."""
    code, data, tasks = _get(pool, CODE), _get(pool, DATA), _get(pool, TASKS)
    task = _add(pool, NEXT, 1)
    while task < tasks:
        if _call(code, data, task):
            _add(pool, FAILED, 1)
        task = _add(pool, NEXT, 1)


@inner()
def _leave(pool):
    """Leave the job; the last worker wakes the caller if it sleeps."""
    if _add(pool, INSIDE, -1) == 1 and _get(pool, WAITING):
        _futex(pool, INSIDE, _WAKE, 1)


@inner()
def _wait_for_workers(pool):
    """Wait until no worker is in the job: poll for a moment, then sleep."""
    polls, began = 0, 0
    inside = _get(pool, INSIDE)
    while inside > 0:
        _wait(polls)
        polls += 1
        if polls % _POLLS_PER_YIELD == 0:
            now = _now(polls)
            if began == 0:
                began = now
            elif now - began > _POLLING:
                _set(pool, WAITING, 1)
                inside = _get(pool, INSIDE)
                if inside > 0:  # the futex sleeps only if INSIDE is unchanged
                    _futex(pool, INSIDE, _SLEEP, inside)
        inside = _get(pool, INSIDE)
    _set(pool, WAITING, 0)


@inner(signature="i8,i8,i8,i8")
def run_tasks(pool, tasks, code, data):
    """Run all tasks of a job (see `this_call`), together with the workers of a pool.

    `pool` is the address of the pool's fields, or 0 for none. Without one, or while another thread
    uses it, the caller runs all tasks by itself. Raises `MemoryError` if a task ran out of memory.
    This function is compiled once, for all kernels.
    """
    failed = 0
    if tasks > 1 and pool != 0 and _take(pool, BUSY):
        _set(pool, CODE, code)
        _set(pool, DATA, data)
        _set(pool, TASKS, tasks)
        _set(pool, NEXT, 0)
        _set(pool, FAILED, 0)
        _set(pool, OPEN, _add(pool, JOBS, 1) + 1)
        _take_tasks(pool)
        _set(pool, OPEN, 0)
        _wait_for_workers(pool)
        failed = _get(pool, FAILED)
        _set(pool, BUSY, 0)
    else:
        for task in range(tasks):
            failed += _call(code, data, task)
    if failed:
        raise MemoryError("a kernel ran out of memory")


@kernel("i8,i8[::1],i8")
def work(pool, last, patience):
    """Work on jobs as a worker of the pool, until none has come for `patience` nanoseconds.

    last[0] is the number of the last job done, which is not done again; it is updated.
    """
    polls, began = 0, 0
    while True:
        job = _get(pool, OPEN)
        if job in (0, last[0]):
            _wait(polls)
            polls += 1
            if polls % _POLLS_PER_YIELD == 0:
                now = _now(polls)
                if began == 0:
                    began = now
                elif now - began > patience:
                    return
            continue
        _add(pool, INSIDE, 1)
        if _get(pool, OPEN) == job:
            _take_tasks(pool)
            last[0] = job
        _leave(pool)
        polls, began = 0, 0
