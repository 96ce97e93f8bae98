"""Goal 7: the start. Importing, and the first step and answer, with and without compiled kernels.

    python -m benchmarks.start [--rounds 5] [--compilations 3] [--keep]

Each figure is the median of fresh processes (quartiles are kept): what `import pellucid` takes
beyond `import numpy`, in pairs; the first step of a small Seq2Seq; its first answer, from loading
its folder on; and the whole of `pellucid generate` with one text. Each but the first with an empty
folder of compiled kernels (`--compilations` processes, since it takes long; then as many on one
processor), and with a filled one.
Python's own bytecode is compiled before, in a folder of its own, as an installed package has it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import machine, quartiles, report

FIRST_STEP = """
import time
import numpy as np
from pellucid.models import (Seq2Seq, Seq2SeqConfig)
from pellucid.core.batch import (Batch, Packed)
from pellucid.training.config import TrainingConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step

config = Seq2SeqConfig(1000, 1000, d_model=64, num_attention_heads=4, encoder_layers=2,
                       decoder_layers=2, ffn_dim=128)
model, settings, draw = Seq2Seq(config), TrainingConfig(steps=1), np.random.default_rng(0).integers
batch = Batch(Packed.of(list(draw(3, 1000, (16, 12)))), Packed.of(list(draw(3, 1000, (16, 13)))))
optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
began = time.perf_counter()
train_step(model, optimizer, batch, settings, step=1, lr=1e-3)
print(time.perf_counter() - began)
"""

SAVE_MODEL = """
import sys
from pathlib import Path
from pellucid.data.tokenizers import train_tokenizer
from pellucid.tasks.folder import save_model
from pellucid.generation import SearchConfig
from pellucid.models import (Seq2Seq, Seq2SeqConfig)
from pellucid.tasks import Seq2SeqTask

tokens = train_tokenizer(["hello there"], "char", None, ())
config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=64, num_attention_heads=4,
                       encoder_layers=2, decoder_layers=2, ffn_dim=128)
model, search = Seq2Seq(config).eval(), SearchConfig(max_length=9)
save_model(Path(sys.argv[1]), Seq2SeqTask(model, tokens, tokens, search), "")
"""

FIRST_ANSWER = """
import sys, time
from pathlib import Path
from pellucid.tasks.folder import load_model

began = time.perf_counter()
load_model(Path(sys.argv[1])).generate(["hello"])
print(time.perf_counter() - began)
"""


def python(arguments: list[str], folder: Path) -> str:
    """Run Python in a new process with its caches in a folder; return its output."""
    keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    caches = {"PYTHONPYCACHEPREFIX": str(folder / "pyc"), "NUMBA_CACHE_DIR": str(folder / "numba")}
    done = subprocess.run(
        [sys.executable, *arguments], env=keep | caches, capture_output=True, text=True, check=True
    )
    return done.stdout


def process_seconds(arguments: list[str], folder: Path) -> float:
    """Time a process, from starting Python to its end."""
    began = time.perf_counter()
    python(arguments, folder)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compilations", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = str(folder / "model")
        python(["-c", SAVE_MODEL, model], folder)
        firsts: dict[str, Callable[[], float]] = {
            "first_step_s": lambda: float(python(["-c", FIRST_STEP], folder)),
            "first_answer_s": lambda: float(python(["-c", FIRST_ANSWER, model], folder)),
            "generate_s": lambda: process_seconds(
                ["-m", "pellucid", "generate", model, "hello"], folder
            ),
        }
        for first in firsts.values():  # bytecode
            first()
        beyond = [
            process_seconds(["-c", "import pellucid"], folder)
            - process_seconds(["-c", "import numpy"], folder)
            for _ in range(options.rounds)
        ]
        result: dict[str, object] = {
            "benchmark": "start",
            "import_s_beyond_numpy": quartiles(beyond, 3),
        }
        for what, first in firsts.items():
            ours = os.sched_getaffinity(0)
            for how, processors in (("", ours), ("_on_one_processor", {min(ours)})):
                os.sched_setaffinity(0, processors)
                compiling = []
                for _ in range(options.compilations):
                    shutil.rmtree(folder / "numba")
                    compiling.append(first())
                result[f"{what}_compiling{how}"] = quartiles(compiling, 2)
            os.sched_setaffinity(0, ours)
            result[f"{what}_compiled"] = quartiles([first() for _ in range(options.rounds)], 2)
    report(result | where, options.keep)


if __name__ == "__main__":
    main()
