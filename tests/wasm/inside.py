"""The parts of `make test-wasm` that run in WebAssembly; each returns 0 if all is right."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

TESTS = ("tests/ops", "tests/nn", "tests/apps/teach/test_exercise.py")


def derivatives() -> int:
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


def tests() -> int:
    """Run the tests of ops, of layers and of the exercises."""
    import pytest

    os.chdir("/pellucid")
    # there are no other processes, no signals, and nothing to redirect what is printed
    # array_api_strict takes int64 for the index of this platform
    strict = "array_api_strict-packed_attention (a function)"
    options = ["--deselect", f"tests/ops/test_table.py::test_every_array_library_agrees[{strict}]"]
    options += ["-q", "--capture=no", "-p", "no:faulthandler", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *TESTS]))
