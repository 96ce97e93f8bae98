"""Goal 2: useful tokens a second on real data, each side with its best batching.

    PELLUCID_DATA=… python -m benchmarks.real_data chatbot-ko|multi30k-de-en [--intel | --avx2]
                                                   [--bfloat16] [--keep]

Three methods on the same pairs with article 003's model: Pellucid on packed batches by token
budget; PyTorch on length-bucketed batches padded to their longest sequence; PyTorch as in article
003, batches padded to 50. They take turns, some batches each, in one process with two threads.
Source tokens and predicted tokens count as useful. With --intel, MKL is told that the processor is
Intel's, and with --avx2 nobody uses AVX-512 (`benchmarks.mkl`). With --bfloat16 two more methods
take turns: Pellucid with bfloat16 products, and bucketed PyTorch under its autocast to bfloat16.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from benchmarks.machine import machine, quartiles, report
from benchmarks.mkl import add_flags, told
from benchmarks.useful_tokens import (
    LONGEST,
    SENTENCES,
    article_task,
    pellucid_way,
    stretch,
    torch_way,
)
from threadpoolctl import threadpool_limits


def of_bfloat16(rates: np.ndarray) -> dict[str, list[float]]:
    """Return the ratios of Pellucid in bfloat16, to the better of PyTorch's two among others."""
    float32, bucketed, _, bfloat16, bucketed_bfloat16 = rates.T
    return {
        "bfloat16_ratio_to_float32": quartiles(bfloat16 / float32, 2),
        "bfloat16_ratio_to_bucketed": quartiles(
            bfloat16 / np.maximum(bucketed, bucketed_bfloat16), 2
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=list(SENTENCES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way in each round")
    add_flags(parser)
    parser.add_argument("--bfloat16", action="store_true", help="in bfloat16 as well")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    mkl = told(options)
    where = machine()
    task = article_task(options.corpus)
    ways = {
        "pellucid": pellucid_way(task),
        "torch_bucketed": torch_way(task),
        "torch_padded_to_50": torch_way(task, padded_to=LONGEST),
    }
    if options.bfloat16:
        ways["pellucid_bfloat16"] = pellucid_way(task, "bfloat16")
        ways["torch_bucketed_bfloat16"] = torch_way(task, precision="bfloat16")
    with threadpool_limits(2):
        for step in ways.values():
            step()
            step()
        rates = np.array(
            [
                [stretch(step, options.seconds) for step in ways.values()]
                for _ in range(options.rounds)
            ]
        )
    result = {
        "benchmark": "real_data",
        "corpus": task.name,
        **mkl,
        "sentences_per_batch": task.sentences,
        "vocabulary": task.config.source_vocab_size,
        "useful_tokens_per_s": {
            name: quartiles(column, 0) for name, column in zip(ways, rates.T, strict=True)
        },
        "ratio_to_bucketed": quartiles(rates[:, 0] / rates[:, 1], 2),
        "ratio_to_padded": quartiles(rates[:, 0] / rates[:, 2], 2),
        **(of_bfloat16(rates) if options.bfloat16 else {}),
        "torch": torch.__version__,
        **where,
    }
    report(result, options.keep)


if __name__ == "__main__":
    main()
