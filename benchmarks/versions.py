"""Two versions of the source, side by side: the time of one relative to the other.

    python -m benchmarks.versions OLD/src NEW/src [--rounds 15] [--steps]

Two processes, one thread each, take turns: old, new, new, old. Each turn repeats one kind of work
for about 0.2 s. What counts is the processor time of the process, not the clock. Each round has new
processes: two processes of one version can differ by a fifth from their start to their end. The
result is the ratio new / old: median and quartiles of the rounds.

With --steps, the work is training steps on all threads, for about 0.7 s a turn: the demo's recipe
on its own batches, and article 003's model on 64 pairs of length 12 and 50. What counts is the
clock, so it needs a quiet machine; each round of processes takes several turns. Reported too are
milliseconds, useful tokens a second, and the share of a step that is Python.
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
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step

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
STEPS = """
import sys, time
import numpy as np
from benchmarks.useful_tokens import demo_task, pellucid_way
from benchmarks.step import N, pellucid_step, random_ids, shares

def article(length):
    step = pellucid_step(*random_ids(length))
    return lambda: (step(), 2 * N * length)[1]

works = {
    "g2p-demo": pellucid_way(demo_task()),
    "length 12": article(12),
    "length 50": article(50),
}
for step in works.values():
    for _ in range(3):
        step()
print("ready", flush=True)
for line in sys.stdin:
    name, _, seconds = line.strip().partition("\\t")
    step = works[name]
    if not seconds:
        print(np.median([shares(step)["Python"] for _ in range(5)]), flush=True)
        continue
    step()
    times, tokens = [], 0
    while sum(times) < float(seconds):
        began = time.perf_counter()
        tokens += step()
        times.append(time.perf_counter() - began)
    print(sum(times) / tokens * 1e6, flush=True)
"""
TURNS, SECONDS = 8, 0.7
STEP_TOKENS = {"g2p-demo": 1013, "length 12": 1536, "length 50": 6400}
"""Useful tokens of a step; for the demo, on average."""
WORKS = (
    "training step", "encoder layer, forward and backward", "linear layer, forward and backward",
    "layer norm, forward and backward",
)  # fmt: skip


class Version:
    """A process that runs one version of the source, on demand."""

    def __init__(self, source: str, worker: str = WORKER) -> None:
        one = {} if worker is STEPS else {"PELLUCID_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", worker], env=os.environ | {"PYTHONPATH": source} | one,
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._line()

    def tell(self, line: str) -> float:
        """Send a line; return the number that the process answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self._line().strip())

    def _line(self) -> str:
        assert self.process.stdout is not None
        if not (line := self.process.stdout.readline()):
            raise SystemExit("a version could not do the work: see above")
        return line


def compare_steps(old_source: str, new_source: str, rounds: int) -> None:
    """Measure training steps, and report."""
    where = machine()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STEP_TOKENS}
    python: dict[str, list[tuple[float, float]]] = {name: [] for name in STEP_TOKENS}
    for _ in range(rounds):
        both = Version(old_source, STEPS), Version(new_source, STEPS)
        for name in STEP_TOKENS:
            for turn in range(TURNS):
                order = both if turn % 2 == 0 else both[::-1]
                found = {version: version.tell(f"{name}\t{SECONDS}") for version in order}
                times[name].append((found[both[0]], found[both[1]]))
            python[name].append((both[0].tell(name), both[1].tell(name)))
        for version in both:
            version.process.communicate()
    result: dict[str, object] = {}
    for name, tokens in STEP_TOKENS.items():
        old, new = zip(*times[name], strict=True)
        shares = zip(*python[name], strict=True)
        result[name] = {
            "new_over_old": quartiles([b / a for a, b in times[name]], 3),
            **{
                version: {
                    "ms": quartiles([tokens * each / 1e3 for each in found], 2),
                    "tokens_per_s": [round(1e6 / q) for q in quartiles(found, 4)[::-1]],
                    "python": quartiles(share, 3),
                }
                for version, found, share in zip(("old", "new"), (old, new), shares, strict=True)
            },
        }
    report({"benchmark": "versions, steps", **result, **where}, keep=False)


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", action="store_true", help="training steps on all threads")
    options = parser.parse_args()
    if options.steps:
        compare_steps(options.old, options.new, options.rounds)
        return
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
