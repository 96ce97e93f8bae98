"""Goal 2: where the time of a step on real data goes, on one thread and on two.

    PELLUCID_DATA=… python -m benchmarks.shares chatbot-ko|multi30k-de-en [--keep]

Article 003's model on packed batches, as in `benchmarks.real_data`. Steps on two threads and on one
take turns. Times are medians, scaled to the useful tokens of one batch. Utilisation is the rate of
a step's matrix products, as a share of the rate of multiply-adds alone on as many threads.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
from benchmarks.machine import machine, report
from benchmarks.peak import multiply_add_rate
from benchmarks.step import forward_operations, pellucid_trainer, shares
from benchmarks.useful_tokens import SENTENCES, Task, article_task, forever
from threadpoolctl import threadpool_limits

from pellucid.data.batches import Batches
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.matmul import products
from pellucid.models import Seq2Seq


def operations(task: Task) -> float:
    """Count the operations of the matrix products in a training step on `batch_tokens` tokens.

    It is scaled from the batches of an epoch, whose useful tokens vary.
    """
    model = Seq2Seq(task.config)
    batches = list(Batches(task.examples, seed=0, batch_tokens=task.batch_tokens).epoch(0))
    forward = sum(
        forward_operations(
            model, {"encoder": batch.source.lengths, "decoder": batch.target.lengths - 1}
        )
        for batch in batches
    )
    return 3 * forward * task.batch_tokens / sum(batch.useful_tokens for batch in batches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=list(SENTENCES))
    parser.add_argument("--steps", type=int, default=150, help="of each number of threads")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    task = article_task(options.corpus)
    train = pellucid_trainer(task.config)
    stream = forever(Batches(task.examples, seed=0, batch_tokens=task.batch_tokens))
    whole, counts = threads.pool, (1, 2)
    found: dict[int, list[dict[str, float]]] = {n: [] for n in counts}
    with threadpool_limits(2):
        for _ in range(5):
            train(next(stream))
        for _ in range(options.steps):
            for n in counts:
                batch = next(stream)
                threads.pool = whole if n > 1 else (lambda: 0)  # 0: the caller runs every task
                began = time.perf_counter()
                parts = shares(partial(train, batch))
                seconds = time.perf_counter() - began
                scale = 1e3 * task.batch_tokens / batch.useful_tokens
                row = {kind: seconds * share * scale for kind, share in parts.items()}
                peak = multiply_add_rate(products()) / 1e9
                found[n].append({**row, "all": seconds * scale, "peak": peak})
    threads.pool = whole
    medians = {
        n: {name: float(np.median([row[name] for row in rows])) for name in rows[0]}
        for n, rows in found.items()
    }
    work = operations(task) / 1e6
    ms = {n: {k: round(v, 2) for k, v in row.items() if k != "peak"} for n, row in medians.items()}
    result = {
        "benchmark": "shares",
        "corpus": task.name,
        "useful_tokens": task.batch_tokens,
        "gflop": round(work / 1e3, 2),
        "ms": ms,
        "multiply_adds_gflops": {n: round(row["peak"], 1) for n, row in medians.items()},
        "utilisation": {n: round(work / row["all"] / row["peak"], 2) for n, row in medians.items()},
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()
