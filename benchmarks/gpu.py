"""A training step on a GPU: tokens a second, Pellucid next to PyTorch, on the same model and batch.

    python -m benchmarks.gpu [--device cuda] [--small] [--compiled] [--rounds 15] [--keep]

Sizes: article 003's model, and 12 + 12 layers of width 1,024. Precisions: float32, tf32 and
bfloat16 (ours with float32 master weights, PyTorch's under autocast). PyTorch runs eagerly with its
fused attention, with its attention unfused ("math"), and with --compiled under torch.compile.
All take turns, step by step, in one process; every step reads the loss back, so no work is left.
Printed are tokens a second (quartiles), the ratio to the best of PyTorch's, and the peak of memory.

The larger model's step needs about 40 GB: all of them are there at a time.

--small takes a model of a few thousand parameters and one round: a test of this file. With
--device cpu it runs on PyTorch's CPU tensors, whose speed says nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from benchmarks.machine import in_turn, machine, quartiles, report
from benchmarks.step import article_config, pellucid_trainer
from benchmarks.torch_model import TorchTrainer
from torch.nn.attention import SDPBackend, sdpa_kernel

from pellucid.apps.cli.language import translated
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.kernels.device import Precision, check_device
from pellucid.models import Seq2SeqConfig

Step = Callable[[], Any]


@dataclass(frozen=True)
class Size:
    """A model, and the number and length of the pairs in its batch."""

    name: str
    config: Seq2SeqConfig
    pairs: int
    length: int


def sizes(small: bool) -> list[Size]:
    """Return the models to measure."""
    if small:
        tiny = Seq2SeqConfig(
            31, 37, d_model=32, num_attention_heads=2, encoder_layers=1, decoder_layers=1,
            ffn_dim=48, max_position_embeddings=12,
        )  # fmt: skip
        return [Size("small", tiny, 3, 7)]
    wide = Seq2SeqConfig(
        32_000, 32_000, d_model=1024, num_attention_heads=16, encoder_layers=12, decoder_layers=12,
        ffn_dim=4096, max_position_embeddings=257,
    )  # fmt: skip
    return [
        Size("article 003, 3 + 3 × 256", article_config(), 64, 50),
        Size("12 + 12 × 1024", wide, 64, 128),
    ]


def steps_of(size: Size, device: str, precision: Precision, compiled: bool) -> dict[str, Step]:
    """Return functions that train one step, by the name of the engine."""
    draw = np.random.default_rng(0).integers
    source = draw(3, size.config.source_vocab_size, (size.pairs, size.length))
    target = draw(3, size.config.target_vocab_size, (size.pairs, size.length + 1))
    batch = Batch(Packed.of(list(source)), Packed.of(list(target)))
    there = "torch:cpu" if device == "cpu" else device
    train = pellucid_trainer(size.config, there, precision)

    def peer(attention: AbstractContextManager[Any], compiled: bool = False) -> Step:
        trainer = TorchTrainer(
            size.config, torch.get_num_threads(), compiled, -1, device, precision == "bfloat16"
        )

        def step() -> float:
            with attention:
                return trainer.step(source, target)

        return step

    named = {
        "pellucid": lambda: train(batch),
        "torch, eager, fused attention": peer(nullcontext()),
        "torch, eager, unfused attention": peer(_Unfused()),
    }
    if compiled:
        named["torch, compiled"] = peer(nullcontext(), compiled=True)
    return named


class _Unfused(AbstractContextManager[None]):
    """Context in which PyTorch uses attention without a fused kernel.

    It can be reused.
    """

    def __enter__(self) -> None:
        self._inner = sdpa_kernel(SDPBackend.MATH)
        self._inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)


def measured(size: Size, options: argparse.Namespace, precision: Precision) -> dict[str, Any]:
    """Measure one model in one precision."""
    on_gpu = options.device != "cpu"
    steps = steps_of(size, options.device, precision, options.compiled)
    memory = {}
    for name, step in steps.items():
        for _ in range(1 if options.small else 3):
            step()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(options.device)
            before = torch.cuda.memory_allocated(options.device)
            step()
            memory[name] = torch.cuda.max_memory_allocated(options.device) - before
    seconds = dict(zip(steps, in_turn(steps.values(), options.rounds), strict=True))
    tokens = 2 * size.pairs * size.length
    peers = [name for name in steps if name != "pellucid"]
    best = min(peers, key=lambda name: float(np.median(seconds[name])))
    return {
        "benchmark": "gpu",
        "model": size.name,
        "precision": precision,
        "tokens": tokens,
        **{f"{name}, tokens/s": quartiles(tokens / times, 0) for name, times in seconds.items()},
        "best of torch": best,
        "ratio": quartiles(seconds[best] / seconds["pellucid"], 2),
        **{f"{name}, peak MB above rest": round(size / 1e6) for name, size in memory.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="PyTorch's name of it")
    parser.add_argument("--small", action="store_true", help="a test of this file")
    parser.add_argument("--compiled", action="store_true", help="torch.compile as well")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args(arguments)
    try:
        check_device("torch:cpu" if options.device == "cpu" else options.device)
    except UserError as error:
        parser.error(translated(str(error)))
    options.rounds = 1 if options.small else options.rounds
    named = {"torch": torch.__version__, "device": options.device}
    if options.device != "cpu":
        named["device"] = torch.cuda.get_device_name(options.device)
    for size in sizes(options.small):
        for precision in get_args(Precision):
            report({**measured(size, options, precision), **named, **machine()}, options.keep)


if __name__ == "__main__":
    main()
