"""Goals 1 and 3: one training step on the same padded shapes, Pellucid beside PyTorch.

    python -m benchmarks.train_step [--length 50] [--rounds 15]

Both run in one process, step by step in turn, on the same token ids, with two threads each. The
result is milliseconds (quartiles), their ratio, and the share of the sgemm rate, measured between
the rounds, that the matrix products of a step amount to.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from benchmarks.machine import machine, quartiles, report
from benchmarks.torch_model import TorchSeq2Seq, TorchTrainer
from threadpoolctl import threadpool_limits

from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.packed import Batch, Packed
from pellucid.training import TrainConfig
from pellucid.training.optim import Adam
from pellucid.training.step import train_step

N, V, E, H, F, LAYERS = 64, 10_000, 256, 8, 512, 3


def flops(n: int, length: int) -> float:
    """Matrix-product operations of one step: forward, and twice that for backward."""
    rows = n * length
    projections = LAYERS * rows * (4 * E * E + 2 * E * F)  # encoder
    projections += LAYERS * rows * (8 * E * E + 2 * E * F)  # decoder
    attention = 3 * LAYERS * n * length * length * 2 * E
    output = rows * E * V
    return 3 * 2.0 * (projections + attention + output)


def pellucid_step(source: np.ndarray, target: np.ndarray) -> Callable[[], float]:
    config = Seq2SeqConfig(
        V, V, d_model=E, num_attention_heads=H, encoder_layers=LAYERS, decoder_layers=LAYERS,
        ffn_dim=F, positions="learned", max_position_embeddings=50 + 1, final_norm=False,
    )  # fmt: skip
    model = Seq2Seq(config)
    batch = Batch(Packed.of(list(source)), Packed.of(list(target)))
    settings = TrainConfig(steps=1)
    optimizer = Adam(model.named_parameters(), settings.optimizer)
    done = 0

    def step() -> float:
        nonlocal done
        done += 1
        tally, _ = train_step(model, optimizer, batch, settings, step=done, lr=5e-4)
        return tally.nats / tally.target_tokens

    return step


def torch_step(source: np.ndarray, target: np.ndarray, compiled: bool) -> Callable[[], float]:
    trainer = TorchTrainer(TorchSeq2Seq(V, E, H, LAYERS, F, 51, 0.1), compiled, pad=-1)
    return lambda: trainer.step(source, target)


def sgemm_rate() -> float:
    """Best of a few 3200 × 256 × 10000 products, in operations a second."""
    a = np.ones((3200, E), np.float32)
    b = np.ones((E, V), np.float32)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * 3200 * E * V / best


def timed(step: Callable[[], float]) -> float:
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


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
