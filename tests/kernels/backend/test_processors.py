"""Kernels compiled for another processor have none of the instructions that it lacks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from processors import AVX2, PLAIN

RUN = """
from pellucid.kernels import add_dropout_norm, linear
from pellucid.kernels.backend import machine_code
from pellucid.kernels.backend.compile import named

product = named["pellucid.kernels.backend.tile.product"]
code = ""
for kernel in (product, add_dropout_norm._forward):
    code += machine_code._machine().emit_assembly(machine_code.parsed(kernel.text()))
print(*(name for name in ("%zmm", "%ymm", "%xmm", "vfmadd", "fmaf") if name in code))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of x86-64")
@pytest.mark.parametrize(
    ("environment", "instructions"),
    [(AVX2, ["%ymm", "%xmm", "vfmadd"]), (PLAIN, ["%xmm"])],
    ids=["AVX2", "x86-64-v2"],
)
def test_kernels_use_a_processors_instructions_and_no_calls_instead(
    environment: dict[str, str], instructions: list[str], tmp_path: Path
) -> None:
    """Without FMA, a call of the C library's fmaf for every number made attention 35 times slower.

    The processors of `make test-processors`: else it would test this one.
    """
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env=os.environ | environment | path | {"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == instructions
