"""Run the kernels' tests for processors and systems that this machine is not.

    python scripts/processors.py [OPTIONS OF PYTEST]

AVX-512 is tested on a processor without it (`wide_vectors`). The instructions of this processor
itself are tested by `make test`. The last tests are those of the thread pools of macOS and Windows
(`portable_pool`).

Environment variables tell Numba the processor and its features; the name alone would leave the
features of this processor. NumPy, with which tests compare, and its BLAS are limited to the same
instructions. The compiled code is the real one; only its speed cannot be measured here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

ROOT = Path(__file__).absolute().parents[1]

AVX512 = {
    "NUMBA_CPU_NAME": "skylake-avx512",  # the first that had it
    "NUMBA_CPU_FEATURES": "+avx2,+fma,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
}
VNNI = {
    "NUMBA_CPU_NAME": "icelake-server",
    "NUMBA_CPU_FEATURES": f"{AVX512['NUMBA_CPU_FEATURES']},+avx512vnni",
}
BFLOAT16 = {
    "NUMBA_CPU_NAME": "cooperlake",
    "NUMBA_CPU_FEATURES": f"{VNNI['NUMBA_CPU_FEATURES']},+avx512bf16",
}
AMX = {
    "NUMBA_CPU_NAME": "sapphirerapids",
    "NUMBA_CPU_FEATURES": f"{BFLOAT16['NUMBA_CPU_FEATURES']},+amx-tile,+amx-bf16",
    "PELLUCID_THREADS": "1",  # where `wide_vectors` has the tiles in memory
}
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",  # the first that had it
    "NUMBA_CPU_FEATURES": "+avx2,+fma,-avx512f",
    "OPENBLAS_CORETYPE": "Haswell",
}
PLAIN = {
    "NUMBA_CPU_NAME": "x86-64-v2",  # what 64-bit Linux distributions ask for: SSE 4.2
    "NUMBA_CPU_FEATURES": "-avx,-avx2,-fma,-avx512f",
    "OPENBLAS_CORETYPE": "Nehalem",
}

TESTS = (
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/kernels/test_*.py")),
    *(f"tests/kernels/backend/test_{name}.py" for name in ("int8", "math", "processors")),
    "tests/compiled",
    "tests/nn/test_edges.py",
    "tests/nn/test_whole_gradients.py",
)
"""Tests of the results of kernels; how they are compiled, cached and threaded is the same
everywhere."""
OF_TILES = (
    "tests/kernels/test_linear.py",
    "tests/kernels/test_precision.py",
    "tests/test_peak_benchmark.py",
)
TESTED = {
    "AVX-512": (BFLOAT16, TESTS), "AMX": (AMX, OF_TILES), "AVX2": (AVX2, TESTS),
    "x86-64-v2": (PLAIN, TESTS),
}  # fmt: skip
"""The environment of each processor, and its tests."""
OTHER_PROCESS = "tests/kernels/test_attention_function.py::test_bits_do_not_depend_on_the_threads"
"""A test that starts processes, which would not have the plugin."""
POOL_TESTS = tuple(f"tests/kernels/backend/test_{name}.py" for name in ("threads", "many_threads"))


def without_simd(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment in which NumPy does not use instructions that a processor lacks."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", ())
    lacks_avx = "-avx" in environment["NUMBA_CPU_FEATURES"].split(",")
    disabled = [name for name in found if lacks_avx or "512" in name or name == "X86_V4"]
    return environment | {"NPY_DISABLE_CPU_FEATURES": " ".join(disabled)}


def main() -> None:
    """Run the tests for every processor of `TESTED` that this one can emulate."""
    if "x86_64" not in llvm.get_process_triple():
        sys.exit("These processors are x86-64; this one is not.")
    here = llvm.get_host_cpu_features()
    failed = []
    for name, (environment, tests) in TESTED.items():
        features = environment["NUMBA_CPU_FEATURES"].split(",")
        contained = all(here[feature[1:]] for feature in features if feature.startswith("+"))
        if all(here[feature[1:]] == feature.startswith("+") for feature in features):
            print(f"{name}: tested by `make test`", flush=True)
            continue
        wide = environment in (BFLOAT16, AMX) and not contained
        if not (contained or wide):
            print(f"{name}: not here", flush=True)
            continue
        print(f"The kernels' tests, compiled for {name}:", flush=True)
        plugin = ["-p", "wide_vectors", "--deselect", OTHER_PROCESS] * wide
        command = [sys.executable, "-m", "pytest", "-q", *plugin, *sys.argv[1:], *tests]
        own = environment if wide else without_simd(environment)
        run = subprocess.run(command, cwd=ROOT, env=os.environ | own)
        failed += [name] if run.returncode else []
    for system in ("macos", "windows"):
        print(f"The kernels' threads, as on {system}:", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            own = {"NUMBA_CACHE_DIR": folder, "PORTABLE_POOL": system}
            command = [sys.executable, "-m", "pytest", "-q", "-p", "portable_pool", *POOL_TESTS]
            run = subprocess.run(command, cwd=ROOT, env=os.environ | own)
        failed += [f"the threads of {system}"] if run.returncode else []
    if failed:
        sys.exit(f"Tests failed, compiled for {' and '.join(failed)}.")


if __name__ == "__main__":
    main()
