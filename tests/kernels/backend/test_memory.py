"""No kernel writes behind the arrays that it makes for itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pellucid.kernels.backend.machine_code import _MEMORY

GUARD = 64
"""Bytes behind an array that nobody may change."""

DECLARED = f"""
declare void @abort()
declare i32 @memcmp(ptr, ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@guard = internal constant [{GUARD} x i8] c"{"Z" * GUARD}"
"""
MADE = f"""
  %place.size = getelementptr i8, ptr %block, i64 32
  store i64 %size, ptr %place.size
  %behind = getelementptr i8, ptr %data, i64 %size
  call void @llvm.memset.p0.i64(ptr %behind, i8 {ord("Z")}, i64 {GUARD}, i1 false)
"""
FREED = f"""
  %place = getelementptr i8, ptr %block, i64 24
  %data = load ptr, ptr %place
  %place.size = getelementptr i8, ptr %block, i64 32
  %size = load i64, ptr %place.size
  %behind = getelementptr i8, ptr %data, i64 %size
  %differs = call i32 @memcmp(ptr %behind, ptr @guard, i64 {GUARD})
  %same = icmp eq i32 %differs, 0
  br i1 %same, label %whole, label %written
written:
  call void @abort()
  unreachable
whole:
"""


def guarded(memory: str) -> str:
    """Return `machine_code._MEMORY` with bytes behind every array, looked at when it is freed."""
    for old, new in (
        ("%size, 104", f"%size, {104 + GUARD}"),
        ("store ptr %data, ptr %place\n", f"store ptr %data, ptr %place\n{MADE}"),
        ("  call void @free(", f"{FREED}  call void @free("),
    ):
        assert memory.count(old) == 1, old
        memory = memory.replace(old, new)
    return DECLARED + memory


RUN = """
import faulthandler, sys
from contextlib import nullcontext

from pellucid.kernels.backend import machine_code
faulthandler.enable()
machine_code._MEMORY = sys.stdin.read()

import numpy as np
from pellucid import ops
from pellucid.compiled.engine import Engine
from pellucid.core.batch import Batch, Packed
from pellucid.generation import SearchConfig
from pellucid.core.dispatch import dispatch
from pellucid.kernels.backend import bfloat16
from pellucid.kernels.precision import bfloat16_products
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.training.config import TrainingConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step

draws = np.random.default_rng(0)
words = [draws.integers(3, 61, n) for n in (1, 19, 7, 2, 83, 31, 5)]
batch = Batch(Packed.of(words), Packed.of([[1, *ids, 2] for ids in words]))
newer = {"activation_function": "swiglu", "norm_type": "rms_norm", "positions": "rotary"}
for more in ({}, {**newer, "qk_norm": True, "num_key_value_heads": 1}):
    config = Seq2SeqConfig(61, 67, d_model=88, num_attention_heads=2, ffn_dim=301, **more)
    for products in (nullcontext, bfloat16_products) if bfloat16.AVAILABLE else (nullcontext,):
        model = Seq2Seq(config)
        settings = TrainingConfig(steps=2)
        optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
        with products():
            for step in (1, 2):
                train_step(model, optimizer, batch, settings, step=step, lr=1e-3)
            x, weight = np.ones((5003, 37), np.float32), np.ones((301, 37), np.float32)
            _, backward = dispatch(ops.linear, x, weight, None)
            backward(np.ones((5003, 301), np.float32))
    for arithmetic in ("float32", "int8"):
        for beam in (1, 3):
            Engine(model.eval(), arithmetic).search(batch.source, SearchConfig(beam=beam))
print("whole")
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_no_kernel_writes_behind_an_array_of_its_own(threads: str) -> None:
    """One that did ended trainings after thousands of steps, in some other place."""
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PELLUCID_THREADS": threads}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=guarded(_MEMORY), capture_output=True, text=True,
        env=os.environ | path, check=False,
    )  # fmt: skip
    assert done.stdout == "whole\n", done.stderr
