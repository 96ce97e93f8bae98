"""PyTorch's wheel multiplies with Intel's MKL, which takes its slow path on other makes.

On a processor that is not Intel's it multiplies at less than half of its rate with AVX2 or AVX-512.
No setting of PyTorch's changes that. So that a ratio says something about Intel's processors too,
the peer can be measured with MKL told that it runs on one: it asks a function of its own, and a
library that is loaded before it may answer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_TOLD = "PELLUCID_BENCHMARK_MKL_TOLD"
_ANSWER = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def as_on_intel() -> None:
    """Begin this program anew, with MKL told that the processor is Intel's; needs a C compiler."""
    if os.environ.get(_TOLD):
        return
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "answer.c"), Path(folder, "answer.so")
        source.write_text(_ANSWER)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        environment = {**os.environ, _TOLD: "1", "LD_PRELOAD": str(library)}
        module = sys.modules["__main__"].__spec__.name  # type: ignore[union-attr]
        again = [sys.executable, "-m", module, *sys.argv[1:]]
        sys.exit(subprocess.run(again, env=environment, check=False).returncode)
