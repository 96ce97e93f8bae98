"""Goals 1 and 3: one training step on the same padded shapes, Pellucid beside PyTorch.

    python -m benchmarks.train_step [--length 50] [--rounds 15]

Both run in one process, step by step in turn, on the same token ids, with two threads each. The
result is milliseconds (quartiles), their ratio, and the share of the sgemm rate, measured between
the rounds, that the matrix products of a step amount to.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
from benchmarks.machine import machine, quartiles, report
from benchmarks.torch_model import TorchSeq2Seq, TorchTrainer
from threadpoolctl import threadpool_limits

from pellucid.bench import LAYERS, E, F, H, N, V, flops, pellucid_step, sgemm_rate, timed


def torch_step(source: np.ndarray, target: np.ndarray, compiled: bool) -> Callable[[], float]:
    trainer = TorchTrainer(TorchSeq2Seq(V, E, H, LAYERS, F, 51, 0.1), compiled, pad=-1)
    return lambda: trainer.step(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compiled", action="store_true", help="torch.compile the peer")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    torch.set_num_threads(2)
    where = machine()
    ids = np.random.default_rng(0)
    source = ids.integers(3, V, (N, options.length))
    target = ids.integers(3, V, (N, options.length + 1))
    ours, theirs = pellucid_step(source, target), torch_step(source, target, options.compiled)
    with threadpool_limits(2):
        for step in (ours, theirs, ours, theirs):
            step()
        times = np.array(
            [(timed(ours), timed(theirs), sgemm_rate()) for _ in range(options.rounds)]
        )
    mine, peer, rate = times.T
    work = flops(N, options.length)
    result = {
        "benchmark": "train_step",
        "length": options.length,
        "pellucid_ms": quartiles(mine * 1e3),
        "torch_ms": quartiles(peer * 1e3),
        "ratio": quartiles(peer / mine, 2),
        "sgemm_gflops": round(float(np.median(rate)) / 1e9, 1),
        "utilisation": round(float(work / np.median(mine) / np.median(rate)), 3),
        "torch_utilisation": round(float(work / np.median(peer) / np.median(rate)), 3),
        "torch": torch.__version__ + (", compiled" if options.compiled else ", eager"),
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()
