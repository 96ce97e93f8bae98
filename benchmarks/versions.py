"""Two versions of the source, side by side: the processor time of one relative to the other.

    python -m benchmarks.versions OLD/src NEW/src [--rounds 15]

Two processes, one thread each, take turns: old, new, new, old. Each turn repeats one kind of work
for about 0.2 s. What counts is the processor time of the process, not the clock. Each round has new
processes: two processes of one version can differ by a fifth from their start to their end. The
result is the ratio new / old: median and quartiles of the rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from benchmarks.machine import machine, quartiles, report

WORKER = """
import sys, time
import numpy as np
from pellucid import nn
from pellucid.core.batch import Batch, Packed
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.training.config import TrainingConfig
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.step import train_step

config = Seq2SeqConfig(1000, 1000, d_model=64, num_attention_heads=4, encoder_layers=2,
                       decoder_layers=2, ffn_dim=128)
model, settings, draw = Seq2Seq(config), TrainingConfig(steps=1), np.random.default_rng(0).integers
batch = Batch(Packed.of(list(draw(3, 1000, (16, 12)))), Packed.of(list(draw(3, 1000, (16, 13)))))
optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
x = np.random.default_rng(1).standard_normal((4, 12, 64)).astype(np.float32)
layer, linear = nn.TransformerEncoderLayer(64, 4, 128).eval(), nn.Linear(64, 64)
norm = nn.LayerNorm(64)

def both(part):
    y, backward = part.forward(x)
    backward(y)

works = {
    "training step": lambda: train_step(model, optimizer, batch, settings, step=1, lr=1e-3),
    "encoder layer, forward and backward": lambda: both(layer),
    "linear layer, forward and backward": lambda: both(linear),
    "layer norm, forward and backward": lambda: both(norm),
}
times = {}
for name, work in works.items():
    for _ in range(3):
        work()
    began = time.process_time()
    for _ in range(10):
        work()
    times[name] = max(3, int(2.0 / max(time.process_time() - began, 1e-6)))
print("ready", flush=True)
for line in sys.stdin:
    name, _, count = line.strip().partition("\\t")
    if not count:
        print(times[name], flush=True)
        continue
    began = time.process_time()
    for _ in range(int(count)):
        works[name]()
    print(time.process_time() - began, flush=True)
"""
WORKS = (
    "training step", "encoder layer, forward and backward", "linear layer, forward and backward",
    "layer norm, forward and backward",
)  # fmt: skip


class Version:
    """A process of one version, which works when told."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": source, "PELLUCID_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], env=environment | {"OMP_NUM_THREADS": "1"}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._line()

    def tell(self, line: str) -> float:
        """Return the number that it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self._line().strip())

    def _line(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("a version could not do the work: see above")
        return line


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    where = machine()
    ratios: dict[str, list[float]] = {work: [] for work in WORKS}
    for _ in range(options.rounds):
        old, new = Version(options.old), Version(options.new)
        for work, found in ratios.items():
            asked = f"{work}\t{old.tell(work):.0f}"
            a, b = old.tell(asked), new.tell(asked)
            b, a = b + new.tell(asked), a + old.tell(asked)
            found.append(b / a)
        for version in (old, new):
            version.process.communicate()
    found_ratios = {work: quartiles(found, 4) for work, found in ratios.items()}
    report({"benchmark": "versions", "new_over_old": found_ratios, **where}, keep=False)


if __name__ == "__main__":
    main()
