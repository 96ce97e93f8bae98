"""Goals 1 and 3: one training step on the same padded shapes, Pellucid beside PyTorch.

    python -m benchmarks.train_step [--length 50] [--rounds 15] [--compiled] [--intel | --avx2]
                                    [--keep]

All run in one process, step by step in turn, on the same token ids, with two threads each. PyTorch
has fused Adam and runs eagerly and, with --compiled, under torch.compile as well: the ratio is to
the better of the two. With --intel, MKL is told that the processor is Intel's, and with --avx2
nobody uses AVX-512 (`benchmarks.mkl`).
The result is milliseconds (quartiles), their ratio, and the share of two rates, measured between
the rounds, that the matrix products of a step amount to: that of a large product of NumPy's, and
the best of Pellucid's own. PyTorch's rate of the same large product is reported next to them, and
that of multiply-adds alone, which bounds them all.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from benchmarks.machine import in_turn, machine, quartiles, report
from benchmarks.mkl import add_flags, told
from benchmarks.peak import multiply_add_rate
from benchmarks.step import (
    E,
    F,
    N,
    V,
    article_config,
    flops,
    pellucid_step,
    random_ids,
    shares,
    timed,
    torch_step,
)
from threadpoolctl import threadpool_limits

from pellucid.kernels.backend.matmul import FLOAT32

THREADS = 2


def sgemm_rate() -> float:
    """Return the rate of NumPy's 3200 × 256 × 10000 product, in operations per second.

    It is the best of a few.
    """
    a = np.ones((3200, E), np.float32)
    b = np.ones((E, V), np.float32)
    return 2 * 3200 * E * V / min(timed(lambda: a @ b) for _ in range(3))


def own_rate() -> float:
    """Return the rate of Pellucid's own product over a step's shapes with 3200 rows.

    It is the best of a few, in operations per second. B is packed already, and all memory was used
    before: a rate that no step can reach.
    """
    rows, best = 3200, 0.0
    for k, n in ((E, E), (E, 3 * E), (F, E), (E, V)):
        a, b = np.ones((rows, k), np.float32), FLOAT32.panels(np.ones((k, n), np.float32))
        c = np.empty((rows, n), np.float32)
        FLOAT32.multiply(a, b, c)
        seconds = min(timed(lambda a=a, b=b, c=c: FLOAT32.multiply(a, b, c)) for _ in range(3))  # type: ignore[misc]
        best = max(best, 2.0 * rows * k * n / seconds)
    return best


def torch_rate() -> float:
    """Return the rate of PyTorch's product of the shape of `sgemm_rate`, best of a few."""
    config = article_config()
    a = torch.ones(3200, config.d_model)
    b = torch.ones(config.d_model, config.target_vocab_size)
    return 2.0 * 3200 * b.numel() / min(timed(lambda: a @ b) for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compiled", action="store_true", help="torch.compile the peer too")
    add_flags(parser)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    mkl = told(options)
    where = machine()
    source, target = random_ids(options.length)
    steps = {"pellucid": pellucid_step(source, target), "eager": torch_step(source, target)}
    if options.compiled:
        steps["compiled"] = torch_step(source, target, compiled=True)
    times, rates = [], []
    with threadpool_limits(THREADS):
        for step in (*steps.values(), *steps.values()):
            step()
        for _ in range(options.rounds):
            times.append(in_turn(steps.values(), 1)[:, 0])
            rates.append((sgemm_rate(), own_rate(), torch_rate(), multiply_add_rate()))
        parts = shares(steps["pellucid"])
    seconds = dict(zip(steps, np.array(times).T, strict=True))
    medians = {name: float(np.median(column)) for name, column in seconds.items()}
    best = min((name for name in steps if name != "pellucid"), key=lambda name: medians[name])
    numpys, own, torchs, most = (float(rate) for rate in np.median(rates, axis=0))
    work = flops(N, options.length)
    result = {
        "benchmark": "train_step",
        "length": options.length,
        **mkl,
        "pellucid_ms": quartiles(seconds["pellucid"] * 1e3),
        "torch_ms": quartiles(seconds[best] * 1e3),
        **{f"torch_{n}_ms": quartiles(seconds[n] * 1e3) for n in steps if n != "pellucid"},
        "ratio": quartiles(seconds[best] / seconds["pellucid"], 2),
        "sgemm_gflops": round(numpys / 1e9, 1),
        "own_product_gflops": round(own / 1e9, 1),
        "torch_product_gflops": round(torchs / 1e9, 1),
        "multiply_add_gflops": round(most / 1e9, 1),
        "utilisation": round(work / medians["pellucid"] / numpys, 3),
        "utilisation_of_own_product": round(work / medians["pellucid"] / own, 3),
        "shares": {kind: round(share, 3) for kind, share in parts.items()},
        "torch_utilisation": round(work / medians[best] / numpys, 3),
        "torch": f"{torch.__version__}, {best}",
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()
