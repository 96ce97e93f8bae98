"""Pytest plugin: run kernels that were built ahead of time instead of compiled ones.

    python scripts/kernels_elsewhere.py TARGET ... [-- OPTIONS OF PYTEST]

    wasm32                  in Node
    aarch64-linux-neon      in qemu-aarch64 (Debian: apt install qemu-user)
    x86_64-linux-LEVEL      in this process, if the processor has the level
    best                    the best level of x86-64 that this processor has

The kernels' own tests then compare each of them with its op, by the rule for all kernels. For
another program, the arrays of a call are sent there and back; see `kernel_server.mjs` and
`kernel_server.c`. In this process every call is made twice, with the library and with the kernel
compiled here for the level: the bits that they write must be equal. Build the kernels first
(`build_kernels.py`).

`LEFT_OUT` lists tests that another program cannot run, and those for which WebAssembly, without
fused multiply-add, is not exact enough.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).absolute().parents[1]
BUILT = ROOT / "build" / "kernels"
SERVERS = {
    "wasm32": ["node", str(ROOT / "scripts" / "kernel_server.mjs"), str(BUILT / "wasm32.wasm")],
    "aarch64-linux-neon": ["qemu-aarch64", str(BUILT / "aarch64-linux-neon.server")],
}
TESTS = (
    *(f"tests/kernels/test_{name}.py" for name in (
        "adam", "attention", "global_norm", "linear", "linear_cross_entropy", "packed_attention",
        "precision", "rows",
    )),
    "tests/kernels/backend/test_int8.py",
    "tests/compiled",
)  # fmt: skip
"""Tests of the results of kernels; not of how they are compiled, nor of a user's functions."""


def lists(kernel: Any) -> bool:
    """Return whether a kernel takes a list of arrays by their addresses."""
    return str(kernel.name).rpartition(".")[0].endswith((".adam", ".global_norm"))


def extents(kernel: Any, args: list[Any]) -> list[list[int]]:
    """Return the memory ranges [start, end] of a call's arrays, merged and in order."""
    found = [
        np.lib.array_utils.byte_bounds(x)
        for value, x in zip(kernel.values, args, strict=True)
        if value.ndim and x.size
    ]
    if lists(kernel):  # and what is read of each
        for row, number in np.ndenumerate(args[3]):
            slices = args[4][args[4][:, 0] == row[0]]
            end = int(number) + 4 * int((slices[:, 1] + slices[:, 2]).max(initial=0))
            found.append((int(number), end))
    merged: list[list[int]] = []
    for low, high in sorted(found):
        if merged and low <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def _but(*tests: str) -> list[str]:
    """Return pytest's options that leave out tests."""
    return [f"--deselect=tests/kernels/test_{test}" for test in tests]


_ELSEWHERE = [
    *_but(
        "attention.py::test_every_rule_of_the_table_has_a_kernel[attention (ALiBi, then a cap)]",
        "packed_attention.py::test_bits_do_not_depend_on_the_threads",
    ),
    "--deselect=tests/kernels/backend/test_int8.py",
]
"""Functions that no library has, and threads of this process."""
LEFT_OUT = {
    "aarch64-linux-neon": _ELSEWHERE,
    "wasm32": [
        *_ELSEWHERE,
        *_but(
            "attention.py::test_padded_batches[0.0-None-True-True]",
            "attention.py::test_rules[67-263-lengths]",
            "attention.py::test_rules[67-263-prefix]",
            "global_norm.py::test_the_norm_is_the_plain_norm_bit_for_bit_from_run_to_run",
            "linear.py::test_special_values_stay_in_their_row",
        ),
    ],
}
called_there: set[str] = set()


class Here:
    """A library for this processor.

    Each of its calls is compared with the compiled kernel's.
    """

    def __init__(self, target: str) -> None:
        from pellucid.kernels.backend.machine_code import know_arrays

        self.library = ctypes.CDLL(str(BUILT / f"{target}.so"))
        know_arrays(ctypes.addressof(ctypes.c_void_p.in_dll(self.library, "numpy.ndarray")))

    def both(self, kernel: Any, compiled: Any) -> Any:
        """Return a function that calls both kernels.

        It raises `AssertionError` if bits differ. The loop of a thread of the pool is not called
        twice: other threads write the same memory meanwhile.
        """
        from pellucid.kernels.backend.machine_code import called

        if kernel.name == "pellucid.kernels.backend.thread_pool.work":
            return compiled
        address = ctypes.cast(self.library[f"{kernel.name}.entry"], ctypes.c_void_p).value
        assert address is not None
        built = called(address)

        def run(*args: Any) -> int:
            if not all(value.fits(x) for value, x in zip(kernel.values, args, strict=True)):
                return int(built(*args))
            places = extents(kernel, list(args))
            before = [ctypes.string_at(low, high - low) for low, high in places]
            status = int(compiled(*args))
            after = [ctypes.string_at(low, high - low) for low, high in places]
            for (low, _), data in zip(places, before, strict=True):
                ctypes.memmove(low, data, len(data))
            assert built(*args) == status, kernel.name
            for (low, high), data in zip(places, after, strict=True):
                assert ctypes.string_at(low, high - low) == data, f"{kernel.name}: other bits"
            called_there.add(kernel.name)
            return status

        return run


class Elsewhere:
    """Another program that runs the kernels, one call at a time."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.program = self.started()
        known = json.loads((BUILT / f"{target}.json").read_text(encoding="utf-8"))
        self.numbers = {name: i for i, name in enumerate(known)}

    def started(self) -> subprocess.Popen[bytes]:
        """Start the program."""
        return subprocess.Popen(SERVERS[self.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, kernel: Any, args: list[Any]) -> int:
        """Run a kernel in the other program, and copy its results into the arrays here."""
        from pellucid.kernels.backend.machine_code import _NUMBERS, REFUSED
        from pellucid.kernels.backend.threads import ParallelKernel

        if not all(value.fits(x) for value, x in zip(kernel.values, args, strict=True)):
            return int(REFUSED)
        if isinstance(kernel, ParallelKernel):
            args = [0, *args[1:]]  # there are no threads
        merged, listed = extents(kernel, args), lists(kernel)

        def place(address: int) -> tuple[int, int]:
            found = (i for i, (low, high) in enumerate(merged) if low <= address <= high)
            i = next(found, None)
            # a block begins in a line of the cache where its first array does here
            return (0, 0) if i is None else (i + 1, address - merged[i][0] + merged[i][0] % 64)

        slots, addresses = b"", []
        for value, x in zip(kernel.values, args, strict=True):
            if not value.ndim:
                kind = {"address": "int64"}.get(value.dtype, value.dtype)
                assert value.dtype in _NUMBERS
                slots += np.array(x).astype(kind).tobytes().ljust(8, b"\0")
                continue
            addresses.append((0, len(slots), *place(x.ctypes.data)))
            slots += np.array([0, *x.shape, *x.strides], np.int64).tobytes()
        blocks = [slots]
        blocks += [bytes(low % 64) + ctypes.string_at(low, high - low) for low, high in merged]
        if listed:
            where, base = place(args[3].ctypes.data)
            for i, address in enumerate(args[3].ravel()):
                addresses.append((where, base + 8 * i, *place(int(address))))
        words = [self.numbers[kernel.name], len(blocks), *map(len, blocks), len(addresses)]
        words += [word for address in addresses for word in address]
        pipe, answer = self.program.stdin, self.program.stdout
        assert pipe is not None
        assert answer is not None
        pipe.write(np.array(words, np.int64).tobytes() + b"".join(blocks))
        pipe.flush()
        head = answer.read(8)
        if len(head) < 8:  # it has said why
            self.program.communicate()
            self.program = self.started()
            raise AssertionError(f"{kernel.name}: the program ended")
        status = int(np.frombuffer(head, np.int64)[0])
        answer.read(len(slots))
        listing = args[3].tobytes() if listed else b""
        for low, high in merged:
            answer.read(low % 64)
            ctypes.memmove(low, answer.read(high - low), high - low)
        if listed:
            ctypes.memmove(args[3].ctypes.data, listing, len(listing))
        return status


def install(target: str) -> None:
    """Replace every kernel by the built one.

    A kernel that is not built cannot be called in another program; in this process it is compiled.
    """
    from pellucid.kernels.backend.compile import Kernel, RefusedError

    if target in SERVERS:
        elsewhere = Elsewhere(target)

        def load(kernel: Kernel) -> Any:
            if kernel.name not in elsewhere.numbers:
                raise RefusedError(f"{kernel.name} is not built")
            called_there.add(kernel.name)
            return lambda *args: elsewhere.call(kernel, list(args))

    else:
        here, compile_here = Here(target), Kernel._load

        def load(kernel: Kernel) -> Any:
            compiled = compile_here(kernel)
            there = hasattr(here.library, f"{kernel.name}.entry")  # no function of a user's
            return here.both(kernel, compiled) if there else compiled

    Kernel._load = load  # type: ignore[assignment, method-assign]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print how many of the kernels ran, and which ones did not run directly."""
    target = os.environ["KERNELS_ELSEWHERE"]
    known = set(json.loads((BUILT / f"{target}.json").read_text(encoding="utf-8")))
    rest = ", ".join(sorted(one.removeprefix("pellucid.") for one in known - called_there))
    terminalreporter.write_line(f"{target}: {len(called_there)} of {len(known)} kernels ran")
    terminalreporter.write_line(f"inside of others, or not: {rest}")


def lacking(target: str) -> str | None:
    """Return why a target cannot be tested here, or None."""
    from build_kernels import is_current
    from pellucid.kernels.backend import built

    if not is_current(target):
        return "it is not built of this code: make kernels"
    if target in SERVERS:
        program = SERVERS[target][0]
        return None if shutil.which(program) else f"{program} is not installed"
    return None if built.runs(target) else "this processor is another"


def main(given: list[str]) -> int:
    """Run the tests for all named targets in parallel; return 0 if none failed."""
    from build_kernels import TARGETS
    from pellucid.kernels.backend import built

    at = given.index("--") if "--" in given else len(given)
    best = next(filter(built.runs, built.LEVELS), "best")  # the best level of this processor

    def run(target: str) -> int:
        why = lacking(target)
        if why is not None:
            print(f"{target}: not tested here, since {why}", flush=True)
            return 0
        environment = os.environ | {
            "NUMBA_CPU_NAME": TARGETS[target].cpu, "NUMBA_CPU_FEATURES": TARGETS[target].features,
            "KERNELS_ELSEWHERE": target, "PELLUCID_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), *filter(None, sys.path)]),
        }  # fmt: skip
        options = [*LEFT_OUT.get(target, ()), *given[at + 1 :]]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "kernels_elsewhere", *options]
        done = subprocess.run(
            [*command, *TESTS], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        print(f"{target}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}", flush=True)
        return done.returncode

    targets = dict.fromkeys(best if target == "best" else target for target in given[:at])
    with ThreadPoolExecutor(os.cpu_count()) as several:
        return max(several.map(run, targets), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
elif "KERNELS_ELSEWHERE" in os.environ:
    install(os.environ["KERNELS_ELSEWHERE"])
