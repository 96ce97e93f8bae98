"""Run both sides with the matrix products of another machine than this one.

PyTorch's wheel multiplies with Intel's MKL, which takes its slow path on processors of other
makers: less than half of its rate with AVX2 or AVX-512. No setting of PyTorch changes that. To
learn about Intel's processors too, MKL can be told that it runs on one: it calls a function to ask,
and a library that is loaded earlier may define that. And since most laptops have no AVX-512, both
sides can be limited to AVX2 as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.processors import AVX2

_TOLD = "PELLUCID_BENCHMARK_MKL_TOLD"
_ANSWER = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
_AVX2 = AVX2 | {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add --intel and --avx2."""
    parser.add_argument("--intel", action="store_true", help="tell MKL it runs on Intel's")
    parser.add_argument("--avx2", action="store_true", help="likewise, and hold all to AVX2")


def told(options: argparse.Namespace) -> dict[str, str]:
    """Restart the program as the flags say.

    Return the fields that a result must state. The settings take effect while libraries are loaded,
    so the program begins anew. MKL is told by a small library, which needs a C compiler.
    """
    if not (options.intel or options.avx2):
        return {}
    if _TOLD not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "answer.c"), Path(folder, "answer.so")
            source.write_text(_ANSWER)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            environment = {**os.environ, _TOLD: "1", "LD_PRELOAD": str(library)}
            environment |= _AVX2 if options.avx2 else {}
            module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
            again = [sys.executable, "-m", module, *sys.argv[1:]]
            sys.exit(subprocess.run(again, env=environment, check=False).returncode)
    return {"mkl": "as on Intel" + (", AVX2 only" if options.avx2 else "")}
