"""A training step of article 003's model, the rates it is compared with, and where time goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pellucid.core.batch import Batch, Packed
from pellucid.core.device import CPU, Precision, place
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.describe import describe
from pellucid.models.sizes import forward_operations
from pellucid.training.config import TrainingConfig
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.step import train_step

N, V, E, H, F, LAYERS = 64, 10_000, 256, 8, 512, 3

KINDS = {
    "matmul": "matrix products",
    "linear": "matrix products",
    "linear_cross_entropy": "output layer and loss",
    "flash": "attention",
    "adam": "optimiser",
    "global_norm": "optimiser",
}
"""The kind of work in a file of `kernels`; that of the others is elementwise."""


def flops(n: int, length: int) -> float:
    """Matrix-product operations of one step: forward, and twice that for backward."""
    lengths = {"encoder": [length] * n, "decoder": [length] * n}
    return 3 * forward_operations(describe(article_config(V, V, LAYERS)), lengths)


def article_config(
    source: int = V, target: int = V, layers: int = LAYERS, longest: int = 51
) -> Seq2SeqConfig:
    """Return article 003's model for vocabularies of these sizes."""
    return Seq2SeqConfig(
        source, target, d_model=E, num_attention_heads=H, encoder_layers=layers,
        decoder_layers=layers, ffn_dim=F, positions="learned", max_position_embeddings=longest,
        final_norm=False,
    )  # fmt: skip


def random_ids(length: int, vocabulary: int = V) -> tuple[np.ndarray, np.ndarray]:
    """Return sources (N, length) and targets (N, length + 1), of tokens that pad nothing."""
    draw = np.random.default_rng(0).integers
    return draw(3, vocabulary, (N, length)), draw(3, vocabulary, (N, length + 1))


def pellucid_trainer(
    config: Seq2SeqConfig, device: str = CPU, precision: Precision = "float32"
) -> Callable[[Batch], float]:
    """Return what trains one step on a batch and gives the mean loss."""
    model, settings, done = Seq2Seq(config), TrainingConfig(steps=1), 0
    place(model, device, precision)
    optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)

    def train(batch: Batch) -> float:
        nonlocal done
        done += 1
        tally, _ = train_step(model, optimizer, batch, settings, step=done, lr=5e-4)
        return tally.nats / tally.target_tokens

    return train


def pellucid_step(
    source: np.ndarray, target: np.ndarray, config: Seq2SeqConfig | None = None
) -> Callable[[], float]:
    """Return what trains one step on ids (N, S) and (N, L + 1) and gives the mean loss."""
    batch = Batch(Packed.of(list(source)), Packed.of(list(target)))
    train = pellucid_trainer(config or article_config())
    return lambda: train(batch)


def sgemm_rate() -> float:
    """Best of a few 3200 × 256 × 10000 products of NumPy's, in operations a second."""
    a = np.ones((3200, E), np.float32)
    b = np.ones((E, V), np.float32)
    return 2 * 3200 * E * V / min(timed(lambda: a @ b) for _ in range(3))


def own_rate() -> float:
    """Best rate of Pellucid's own product over a step's shapes with 3200 rows, in operations a
    second.

    B lies in panels already, and no memory is fresh: a rate that no step can reach.
    """
    from pellucid.kernels.backend.matmul import multiply, panels

    rows, best = 3200, 0.0
    for k, n in ((E, E), (E, 3 * E), (F, E), (E, V)):
        a, b = np.ones((rows, k), np.float32), panels(np.ones((k, n), np.float32))
        c = np.empty((rows, n), np.float32)
        multiply(a, b, c)
        seconds = min(timed(lambda a=a, b=b, c=c: multiply(a, b, c)) for _ in range(3))  # type: ignore[misc]
        best = max(best, 2.0 * rows * k * n / seconds)
    return best


def in_turn(calls: Iterable[Callable[[], Any]], rounds: int) -> np.ndarray:
    """Return the seconds of each call (calls, rounds), the calls taking turns in every round."""
    calls = list(calls)
    return np.array([[timed(call) for call in calls] for _ in range(rounds)]).T


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def shares(step: Callable[[], float]) -> dict[str, float]:
    """Return the share of one step's time by kind of work; Python is what no kernel takes."""
    from pellucid.kernels.backend.compile import Kernel

    spent = dict.fromkeys([*KINDS.values(), "elementwise"], 0.0)
    plain, caller = Kernel.__call__, threading.get_ident()

    def measured(self: Kernel, *args: object) -> object:
        began = time.perf_counter()
        result = plain(self, *args)
        seconds = time.perf_counter() - began
        if threading.get_ident() == caller:  # helping threads wait inside their own kernel call
            spent[KINDS.get(self.function.__module__.rsplit(".", 1)[-1], "elementwise")] += seconds
        return result

    Kernel.__call__ = measured  # type: ignore[method-assign]
    try:
        whole = timed(step)
    finally:
        Kernel.__call__ = plain  # type: ignore[method-assign]
    return {
        **{kind: seconds / whole for kind, seconds in spent.items()},
        "Python": 1.0 - sum(spent.values()) / whole,
    }
