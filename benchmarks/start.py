"""Goal 7: the start. Importing, and the first training step, with and without compiled kernels.

    python -m benchmarks.start [--rounds 5] [--keep]

Each figure is the median of fresh processes (quartiles are kept): what `import pellucid` takes
beyond `import numpy`, in pairs; the first step of a small Seq2Seq when the folder of compiled
kernels is empty (one process, since it takes long), and when it is filled. Python's own bytecode is
compiled before, in a folder of its own, as an installed package has it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine, quartiles, report

FIRST_STEP = """
import time
import numpy as np
from pellucid.models import (Seq2Seq, Seq2SeqConfig)
from pellucid.core.batch import (Batch, Packed)
from pellucid.training.config import TrainingConfig
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.step import train_step

config = Seq2SeqConfig(1000, 1000, d_model=64, num_attention_heads=4, encoder_layers=2,
                       decoder_layers=2, ffn_dim=128)
model, settings, draw = Seq2Seq(config), TrainingConfig(steps=1), np.random.default_rng(0).integers
batch = Batch(Packed.of(list(draw(3, 1000, (16, 12)))), Packed.of(list(draw(3, 1000, (16, 13)))))
optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
began = time.perf_counter()
train_step(model, optimizer, batch, settings, step=1, lr=1e-3)
print(time.perf_counter() - began)
"""


def python(program: str, folder: Path) -> str:
    """Run a program in a process of its own, its caches in a folder; return what it prints."""
    keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    caches = {"PYTHONPYCACHEPREFIX": str(folder / "pyc"), "NUMBA_CACHE_DIR": str(folder / "numba")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=keep | caches, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    return done.stdout


def import_seconds(package: str, folder: Path) -> float:
    """Return the seconds from starting Python to its end, with one import between."""
    began = time.perf_counter()
    python(f"import {package}", folder)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python("import pellucid.training, pellucid.models, numba", folder)  # bytecode
        beyond = [
            -import_seconds("numpy", folder) + import_seconds("pellucid", folder)
            for _ in range(options.rounds)
        ]
        empty = float(python(FIRST_STEP, folder))
        filled = [float(python(FIRST_STEP, folder)) for _ in range(options.rounds)]
    result = {
        "benchmark": "start",
        "import_s_beyond_numpy": quartiles(beyond, 3),
        "first_step_s_compiling": round(empty, 2),
        "first_step_s_compiled": quartiles(filled, 2),
    }
    report(result | where, options.keep)


if __name__ == "__main__":
    main()
