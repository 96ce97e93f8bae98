"""A plugin for pytest: kernels run in another program, which has them built ahead of time.

    python scripts/kernels_elsewhere.py wasm32 [OPTIONS OF PYTEST]       in Node

So the kernels' own tests judge them: each is compared with its op, by the rule for all kernels.
What a kernel reads and writes is sent there and back; see `kernel_server.mjs`. Build them first
(`build_kernels.py`).

Of the kernels that train, these fail in WebAssembly, which has no fused multiply-add: two rules of
attention, by a tenth of what is allowed, a linear layer beside NaN, by a number near 0, and the
norm of all gradients in its twelfth digit. Compiled decoding (`pellucid.compiled`) is in the module
and is not right yet: its first call reads out of bounds. Functions of a user's are not in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).absolute().parents[1]
BUILT = ROOT / "build" / "kernels"
SERVERS = {
    "wasm32": ["node", str(ROOT / "scripts" / "kernel_server.mjs"), str(BUILT / "wasm32.wasm")],
}
TESTS = (
    *(f"tests/kernels/test_{name}.py" for name in (
        "adam", "attention", "global_norm", "linear", "linear_cross_entropy", "packed_attention",
        "rows",
    )),
)  # fmt: skip
"""What a kernel computes; how it is compiled, and functions of a user's, are not of this."""


class Elsewhere:
    """The program that has the kernels, and one call at a time."""

    def __init__(self, target: str) -> None:
        self.program = subprocess.Popen(
            SERVERS[target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        known = json.loads((BUILT / f"{target}.json").read_text(encoding="utf-8"))
        self.numbers = {name: i for i, name in enumerate(known)}

    def call(self, kernel: Any, args: list[Any]) -> int:
        """Run a kernel there, and write what it wrote into the arrays here."""
        from pellucid.kernels.backend.machine_code import _NUMBERS, REFUSED
        from pellucid.kernels.backend.threads import ParallelKernel

        if not all(value.fits(x) for value, x in zip(kernel.values, args, strict=True)):
            return int(REFUSED)
        if isinstance(kernel, ParallelKernel):
            args = [0, *args[1:]]  # there are no threads
        extents = [
            np.lib.array_utils.byte_bounds(x)
            for value, x in zip(kernel.values, args, strict=True)
            if value.ndim and x.size
        ]
        listed = kernel.name.rpartition(".")[0].endswith((".adam", ".global_norm"))
        if listed:  # arrays that come as their addresses, and what is read of each
            for row, number in np.ndenumerate(args[3]):
                address = int(number)
                slices = args[4][args[4][:, 0] == row[0]]
                extents.append(
                    (address, address + 4 * int((slices[:, 1] + slices[:, 2]).max(initial=0)))
                )
        merged: list[list[int]] = []
        for low, high in sorted(extents):
            if merged and low <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])

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
        status = int(np.frombuffer(answer.read(8), np.int64)[0])
        answer.read(len(slots))
        listing = args[3].tobytes() if listed else b""
        for low, high in merged:
            answer.read(low % 64)
            ctypes.memmove(low, answer.read(high - low), high - low)
        if listed:
            ctypes.memmove(args[3].ctypes.data, listing, len(listing))
        return status


def install(target: str) -> None:
    """Let every kernel run there; one that is not built cannot be compiled."""
    from pellucid.kernels.backend.compile import Kernel, RefusedError

    elsewhere = Elsewhere(target)

    def load(kernel: Kernel) -> Any:
        if kernel.name not in elsewhere.numbers:
            raise RefusedError(f"{kernel.name} is not built")
        return lambda *args: elsewhere.call(kernel, list(args))

    Kernel._load = load  # type: ignore[assignment, method-assign]


def main(target: str, options: list[str]) -> int:
    """Run the tests; return the exit code."""
    from build_kernels import TARGETS

    environment = os.environ | {
        "NUMBA_CPU_NAME": TARGETS[target].cpu, "NUMBA_CPU_FEATURES": TARGETS[target].features,
        "KERNELS_ELSEWHERE": target, "PELLUCID_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "scripts"), *filter(None, sys.path)]),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kernels_elsewhere", *options]
    return subprocess.run([*command, *TESTS], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
elif "KERNELS_ELSEWHERE" in os.environ:
    install(os.environ["KERNELS_ELSEWHERE"])
