"""Attention with masks and rules: torch's classes as their users call them, and rule by rule.

    python -m benchmarks.attention drop-in [--rounds 9] [--intel | --avx2] [--keep]
    python -m benchmarks.attention rules [--lengths 512 2048 8192] [--rounds 3] [--keep]

`drop-in`: forward and backward of nn.Transformer (E 256, H 8, 3 + 3 layers, F 512, 64 × 50, dropout
0.1), MultiheadAttention and scaled_dot_product_attention, Pellucid and PyTorch in turn, with the
masks that PyTorch's users pass; milliseconds (quartiles) and ratios.
`rules`: each rule on the fused kernel and on the reference op, and PyTorch's own attention given
the same rule as a dense mask (causal by its flag), one sequence, 8 heads of 32; seconds and the
peak memory of a process of its own. PyTorch's FlexAttention, compiled, has no backward on a CPU:
its forward is compared with ours; compiling (about a minute) is not counted. Where a side would
hold an array of H · L² numbers it is left out from 8,192 tokens on. Above that only the rules that
skip keys are measured, on the kernel and on FlexAttention.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import mkl
from benchmarks.machine import apart, in_turn, machine, quartiles, report
from benchmarks.step import timed

THREADS, E, H, N, L = 2, 256, 8, 64, 50
RULES = (
    "none", "causal", "window 128", "alibi", "T5", "soft cap", "documents", "dense float mask",
    "function",
)  # fmt: skip
SIDES = ("fused", "reference", "torch", "flex")


def masks() -> dict[str, dict[str, np.ndarray | bool]]:
    """Return the arguments of nn.Transformer, by name; those that vary between calls are arrays."""
    random = np.random.default_rng(1)
    causal = np.triu(np.full((L, L), -np.inf, np.float32), 1)
    dense = random.standard_normal((L, L), np.float32)
    padding = np.arange(L) >= random.integers(L // 2, L + 1, N)[:, None]
    padded = {f"{name}_key_padding_mask": padding for name in ("src", "tgt", "memory")}
    return {
        "no mask": {},
        "causal mask, float": {"tgt_mask": causal},
        "causal mask, bool": {"tgt_mask": causal < 0},
        "causal mask and flag": {"tgt_mask": causal, "tgt_is_causal": True},
        "causal mask, key padding": {"tgt_mask": causal < 0, **padded},
        "dense float masks": {"src_mask": dense, "tgt_mask": dense + causal},
    }


def transformer_steps(given: dict[str, Any]) -> list[Callable[[], Any]]:
    """Return a step of Pellucid's nn.Transformer and of PyTorch's, with the same masks."""
    import torch

    from pellucid import Rng, nn

    sizes: dict[str, Any] = {
        "d_model": E, "nhead": H, "num_encoder_layers": 3, "num_decoder_layers": 3,
        "dim_feedforward": 2 * E, "batch_first": True,
    }  # fmt: skip
    ours, theirs = nn.Transformer(**sizes), torch.nn.Transformer(**sizes)
    x = np.random.default_rng(0).standard_normal((2, N, L, E), np.float32)
    tensors = {k: v if isinstance(v, bool) else torch.from_numpy(v) for k, v in given.items()}
    src, tgt = (torch.from_numpy(each).requires_grad_() for each in x)
    dy = np.ones((N, L, E), np.float32)

    def our_step() -> None:
        _, backward = ours.forward(*x, rng=Rng(1), **given)
        backward(dy)

    def their_step() -> None:
        theirs(src, tgt, **tensors).backward(torch.from_numpy(dy))

    return [our_step, their_step]


def attention_steps(weights: bool) -> list[Callable[[], Any]]:
    """Return a step of Pellucid's MultiheadAttention and of PyTorch's."""
    import torch

    from pellucid import nn

    x = np.random.default_rng(0).standard_normal((N, L, E), np.float32)
    ours = nn.MultiheadAttention(E, H, batch_first=True)
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=True)
    t, dy = torch.from_numpy(x).requires_grad_(), np.ones_like(x)

    def our_step() -> None:
        _, backward = ours.forward(x, x, x, need_weights=weights)
        backward(dy)

    def their_step() -> None:
        theirs(t, t, t, need_weights=weights)[0].backward(torch.from_numpy(dy))

    return [our_step, their_step]


def product_steps() -> list[Callable[[], Any]]:
    """Return a step of scaled_dot_product_attention with a dense float mask on both sides."""
    import torch

    from pellucid.nn import functional

    random = np.random.default_rng(0)
    q, k, v, dout = random.standard_normal((4, N, H, L, E // H), np.float32)
    mask = random.standard_normal((L, L), np.float32)
    tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    added, upstream = torch.from_numpy(mask), torch.from_numpy(dout)

    def our_step() -> None:
        _, backward = functional.scaled_dot_product_attention.forward(q, k, v, mask)
        backward(dout)

    def their_step() -> None:
        for tensor in tensors:
            tensor.grad = None
        torch.nn.functional.scaled_dot_product_attention(*tensors, added).backward(upstream)

    return [our_step, their_step]


def drop_in(rounds: int) -> dict[str, Any]:
    """Time all pairs in turn, after two calls of each to compile; return their results."""
    import torch

    torch.set_num_threads(THREADS)
    pairs = {f"Transformer, {name}": transformer_steps(given) for name, given in masks().items()}
    pairs["MultiheadAttention"] = attention_steps(False)
    pairs["MultiheadAttention, averaged weights"] = attention_steps(True)
    pairs["scaled_dot_product_attention, float mask"] = product_steps()
    calls = [call for pair in pairs.values() for call in pair]
    in_turn(calls, 2)
    seconds = in_turn(calls, rounds).reshape(len(pairs), 2, rounds)
    rows = {}
    for name, (ours, theirs) in zip(pairs, seconds, strict=True):
        rows[name] = {
            "pellucid_ms": quartiles(ours * 1e3),
            "torch_ms": quartiles(theirs * 1e3),
            "ratio": quartiles(theirs / ours, 2),
        }
        if name.startswith("Transformer"):
            rows[name]["over_no_mask"] = quartiles(ours / seconds[0, 0], 3)
    return {"drop_in": rows}


def rule_of(name: str, length: int) -> Any:
    """Return a rule by its name in this file.

    `function` is that of examples/my_rule.py.
    """
    from pellucid.core import parts
    from pellucid.ops import rules
    from pellucid.ops.rules.function import FUNCTIONS

    random = np.random.default_rng(1)
    if name == "function":
        parts.use("examples/my_rule.py")
        gain, bias = (random.standard_normal(shape, np.float32) for shape in ((H,), (H, 32)))
        return rules.causal & FUNCTIONS["near"](gain, bias)
    table = random.standard_normal((32, H), np.float32)
    return {
        "none": rules.Rule,
        "causal": lambda: rules.causal,
        "window 128": lambda: rules.causal & rules.window(128),
        "alibi": lambda: rules.causal & rules.alibi,
        "T5": lambda: rules.causal & rules.relative(table, 128, False),
        "soft cap": lambda: rules.soft_cap(50.0) & rules.causal,
        "documents": lambda: rules.causal & rules.documents(np.arange(0, length, 256)),
        "dense float mask": lambda: rules.mask(
            random.standard_normal((length, length), np.float32)
        ),
    }[name]()


def rule_run(side: str, name: str, length: int) -> dict[str, float]:
    """Time one sequence on one side after a warm-up, and return the peak memory in MB too.

    Of "flex" it is the forward alone, of "torch" forward and backward, of the others each. A time
    is the best of three runs, or that of one run from 8,192 tokens on.
    """
    from pellucid import ops
    from pellucid.core import dispatch

    q, k, v, dout = np.random.default_rng(0).standard_normal((4, 1, H, length, 32), np.float32)
    rule = None if side == "torch" else rule_of(name, length)
    found: dict[str, float] = {}
    if side == "flex":
        found["forward_seconds"] = min(run(flex(name, length, rule, (q, k, v)), length))
    elif side == "torch":
        import torch

        torch.set_num_threads(THREADS)
        causal = name == "causal"  # by its flag, which skips what a mask would only forbid
        mask = None if name == "none" or causal else masked(name, length)
        tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        upstream = torch.from_numpy(dout)

        def once() -> None:
            for tensor in tensors:
                tensor.grad = None  # else every backward would add to the last one's
            torch.nn.functional.scaled_dot_product_attention(
                *tensors, mask, is_causal=causal
            ).backward(upstream)

        found["seconds"] = min(run(once, length))
    else:

        def forward() -> Any:
            return dispatch.dispatch(ops.attention, q, k, v, rule=rule)

        with dispatch.reference() if side == "reference" else nullcontext():
            found["seconds"] = min(run(lambda: forward()[1](dout), length))
            found["forward_seconds"] = min(run(forward, length))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found | {"peak_mb": round(peak)}


def flex(name: str, length: int, rule: Any, arrays: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """Return a call of compiled FlexAttention with the same rule."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.set_num_threads(THREADS)
    slopes = torch.tensor([2.0 ** -(8 / H * (h + 1)) for h in range(H)])
    learnt = [torch.from_numpy(x) for part in rule.score for x in part.parameters]
    if name == "T5":  # by distance and head: its buckets are looked up once
        (part,) = rule.score
        by_distance = torch.from_numpy(part.values(np.arange(length), H)[0])
    if name == "dense float mask":
        given = torch.from_numpy(rule.score[0].mask)

    def function(a: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        gain, bias = learnt
        return a + gain[h] * torch.tanh(a) + bias[h, (i - j).abs().clamp(max=31)]

    scores = {
        "alibi": lambda a, b, h, i, j: a - slopes[h] * (i - j),
        "T5": lambda a, b, h, i, j: a + by_distance[h, (i - j).clamp(min=0)],
        "soft cap": lambda a, b, h, i, j: 50.0 * torch.tanh(a / 50.0),
        "dense float mask": lambda a, b, h, i, j: a + given[i, j],
        "function": function,
    }
    seen = {
        "none": None,
        "dense float mask": None,
        "window 128": lambda b, h, i, j: (i >= j) & (i - j < 128),
        "documents": lambda b, h, i, j: (i >= j) & (i // 256 == j // 256),
    }.get(name, lambda b, h, i, j: i >= j)
    made = torch.compile(create_block_mask)  # as it is, it would hold all L² of them
    block = seen and made(seen, None, None, length, length, device="cpu")
    compiled = torch.compile(flex_attention)
    tensors = [torch.from_numpy(x) for x in arrays]

    def once() -> None:
        with torch.no_grad():
            compiled(*tensors, score_mod=scores.get(name), block_mask=block)

    return once


def run(once: Callable[[], Any], length: int) -> list[float]:
    """Call once to warm up, then return the seconds of three calls, or of one if they are long."""
    once()
    return [timed(once) for _ in range(3 if length < 8192 else 1)]


def masked(name: str, length: int) -> Any:
    """Return a rule as PyTorch's mask, made in another process to keep it out of the peak."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mask.npy"
        code = (
            "import numpy as np; from benchmarks.attention import dense, rule_of; "
            f"np.save({str(path)!r}, dense(rule_of({name!r}, {length}), {length}))"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        return torch.from_numpy(np.load(path))


def dense(rule: Any, length: int) -> np.ndarray:
    """Return a rule as a float mask, (1, H or 1, L, L), for PyTorch.

    A soft cap has none.
    """
    from pellucid.ops.rule import applied

    heads = H if any(hasattr(part, "values") for part in rule.score) else 1
    mask, _ = applied(rule, np.zeros((1, heads, length, length), np.float32))
    found: np.ndarray = mask
    return found


def is_left_out(side: str, name: str, length: int) -> bool:
    """Return whether a side has no such rule, or would hold all scores of a long sequence."""
    if side == "torch" and name in ("soft cap", "function"):
        return True
    if length > 8192:
        return name not in ("window 128", "documents") or side not in ("fused", "flex")
    every_score = side == "reference" or (side == "torch" and name in ("alibi", "T5"))
    return length >= 8192 and every_score


def by_rule(lengths: list[int], rounds: int) -> dict[str, Any]:
    """Measure each rule on each side, each in a process of its own."""
    table: dict[str, Any] = {}
    for length in lengths:
        for name in RULES:
            row: dict[str, Any] = {}
            for side in SIDES:
                if is_left_out(side, name, length):
                    continue
                once = side == "flex"  # compiling it takes half a minute
                call = f"rule_run({side!r}, {name!r}, {length})"
                found = [apart("attention", call) for _ in range(1 if once else rounds)]
                row[side] = {
                    key: quartiles([each[key] for each in found], 4)
                    for key in ("seconds", "forward_seconds")
                    if key in found[0]
                }
                row[side]["peak_mb"] = max(each["peak_mb"] for each in found)
            if row:
                table.setdefault(str(length), {})[name] = row
                print(length, name, json.dumps(row), file=sys.stderr, flush=True)
    return {"rules": table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("drop-in", "rules"))
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--lengths", type=int, nargs="*", default=[512, 2048, 8192])
    mkl.add_flags(parser)
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": f"attention, {options.what}", **mkl.told(options)}
    where = machine()
    if options.what == "drop-in":
        result |= drop_in(options.rounds)
    else:
        result |= by_rule(options.lengths, options.rounds)
    report(result | {"machine": where}, options.keep)


if __name__ == "__main__":
    main()
