"""Goal 4: memory. Peak resident size of goal 1's training step, and attention over long sequences.

    python -m benchmarks.memory [--lengths 8192 32768] [--intel | --avx2] [--keep]

Each side of each measurement runs in a process of its own, since a peak never falls again. With
--intel, MKL is told that the processor is Intel's, and with --avx2 nobody uses AVX-512
(`benchmarks.mkl`); the peaks are then left out.
"""

from __future__ import annotations

import argparse
import resource
import time
from functools import partial
from typing import Any

from benchmarks import mkl
from benchmarks.machine import apart, machine, quartiles, report

HEADS, WIDTH = 8, 32


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def step_of(side: str) -> dict[str, float]:
    """Measure the peak memory of a training step of one side."""
    from benchmarks.step import pellucid_step, random_ids, torch_step

    source, target = random_ids(50)
    step = (pellucid_step if side == "pellucid" else torch_step)(source, target)
    for _ in range(5):
        step()
    return {"peak_mb": peak()}


def attention_of(side: str, length: int, causal: bool) -> dict[str, float]:
    """Time forward and backward of attention over one sequence, after a warm-up.

    It is the best of three runs, or one run of a long sequence. Returned too is the peak memory in
    MB after the warm-up.
    """
    import numpy as np

    x = np.random.default_rng(0).standard_normal((4, length, HEADS, WIDTH), np.float32)
    if side == "pellucid":
        from pellucid import ops
        from pellucid.core.dispatch import dispatch
        from pellucid.ops import rules

        q, k, v, dout = x
        cu = np.array([0, length])

        def once() -> None:
            rule = rules.causal if causal else rules.Rule()
            _, backward = dispatch(ops.packed_attention, q, k, v, cu, cu, rule=rule)
            backward(dout)
    else:
        import torch

        torch.set_num_threads(2)
        tensors = [torch.from_numpy(part).transpose(0, 1)[None] for part in x]
        q, k, v = (t.clone().requires_grad_() for t in tensors[:3])

        def once() -> None:
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            out.backward(tensors[3])

    once()
    base = peak()
    times = []
    for _ in range(3 if length < 20_000 else 1):
        began = time.perf_counter()
        once()
        times.append(time.perf_counter() - began)
    return {"seconds": min(times), "peak_mb": base}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="*", default=[8192, 32768])
    mkl.add_flags(parser)
    options = parser.parse_args()
    told = mkl.told(options)
    where = machine()
    sides, measured = ("pellucid", "torch"), partial(apart, "memory")
    result: dict[str, Any] = {"benchmark": "memory", **told}
    if not told:
        step = {side: measured(f"step_of({side!r})")["peak_mb"] for side in sides}
        result["step_peak_mb"] = {side: round(mb) for side, mb in step.items()}
        result["step_ratio"] = round(step["torch"] / step["pellucid"], 2)
        result["attention_peak_mb_by_length"] = {
            str(length): round(
                apart("memory", f"attention_of('pellucid', {length}, False)")["peak_mb"]
            )
            for length in (1024, 2048, 4096, 8192, 16384)
        }
    for length in options.lengths:
        for causal in (False, True):
            rounds = [
                {
                    side: apart("memory", f"attention_of({side!r}, {length}, {causal})")
                    for side in sides
                }
                for _ in range(options.rounds)
            ]
            result[f"attention_{length}{'_causal' if causal else ''}"] = {
                "seconds": {s: quartiles([r[s]["seconds"] for r in rounds], 3) for s in sides},
                "ratio": quartiles(
                    [r["torch"]["seconds"] / r["pellucid"]["seconds"] for r in rounds], 2
                ),
            }
    report({**result, **where}, options.keep)


if __name__ == "__main__":
    main()
