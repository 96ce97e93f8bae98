"""The part of `make test-wasm` that runs in WebAssembly: `main` returns 0 if all is right."""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> int:
    """Compare the derivative of every op and layer with a finite difference."""
    from pellucid.check import cases, run_checks

    started = time.monotonic()
    bits = 8 * np.dtype(np.intp).itemsize
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, indices of {bits} bits")
    results = list(run_checks(cases()))
    wrong = [result.name for result in results if not result.passed]
    print(f"{len(results) - len(wrong)} of {len(results)} derivatives correct", *wrong)
    print(f"{time.monotonic() - started:.0f} s in WebAssembly")
    return int(bool(wrong))
