"""How fast this machine trains, compared with PyTorch if it is installed: about a minute.

    python -m benchmarks.step [--rounds 5] [--no-torch] [--json] [--precision bfloat16]

Measures a training step of article 003's model, on pairs of 50 and of 12 tokens a side. If PyTorch
is installed, it takes turns with Pellucid in the same process, on as many threads. All figures are
medians over the rounds; a ratio has its quartiles.

Utilisation is the rate of the step's matrix products as a fraction of that of multiply-adds alone,
which nothing on this processor can pass; with PyTorch, it also bounds the ratio.

The other benchmarks take their model, its steps and the shares of a step from here.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from benchmarks.peak import multiply_add_rate
from benchmarks.torch_model import TorchTrainer
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from pellucid import nn
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.kernels.backend.machine import environment
from pellucid.kernels.backend.matmul import products
from pellucid.kernels.backend.threads import available
from pellucid.kernels.device import CPU, Precision, place
from pellucid.kernels.precision import products_for
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.nn.attention import Attention
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.training.config import TrainingConfig

N, V, E, H, F, LAYERS, LONGEST = 64, 10_000, 256, 8, 512, 3, 51

BUSY = 0.25
"""The most processors that other programs may use during a measurement, as a fraction."""

KINDS = {
    "matmul": "matrix products",
    "linear": "matrix products",
    "linear_cross_entropy": "output layer and loss",
    "flash": "attention",
    "attention_weights": "attention",
    "adam": "optimiser",
    "muon": "optimiser",
    "global_norm": "optimiser",
}
"""Kind of work of each file of `kernels`; all others are elementwise."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns for each side")
    parser.add_argument("--no-torch", action="store_true", help="even if it is installed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="of matrix products: bfloat16 needs AVX512-BF16 (PyTorch has its autocast)",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    try:
        products_for(CPU, options.precision)  # refused before anything is measured
    except UserError as error:
        parser.error(str(error))
    compared = not options.no_torch and find_spec("torch") is not None
    busy, steps = load(), []
    with threadpool_limits(available()):
        for length in (50, 12):
            # A line, and no live display, which would take part of the processor.
            print(
                f"measuring training steps of length {length}; the first compile kernels",
                file=sys.stderr,
            )
            steps.append(measure_step(length, options.rounds, compared, options.precision))
    if options.json:
        where = {**environment(), "threads": str(available()), "load before": f"{busy:.2f}"}
        if compared:
            where["torch"] = version("torch")
        print(json.dumps({"step": steps, "environment": where}, indent=1))
        return
    Console(highlight=False).print(step_table(steps))
    if not options.no_torch and not compared:
        print("PyTorch is not installed; skipping the comparison.")
    if busy > BUSY * available():
        print(
            f"Other programs kept {busy:.1f} processors busy in the minute before. Do not trust "
            "these figures. PyTorch slows down most, because its threads wait for each other."
        )


def load() -> float:
    """Return how many processors were busy in the last minute; 0 if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def measure_step(
    length: int, rounds: int, compared: bool, precision: Precision = "float32"
) -> dict[str, Any]:
    """Return medians over some steps on pairs of `length` tokens a side, none of them padding."""
    source, target = random_ids(length)
    ours = pellucid_step(source, target, precision=precision)
    steps: list[Callable[[], object]] = [ours]
    if compared:
        steps.append(torch_step(source, target, precision))
    for step in steps * 2:  # compile, and fill the caches
        step()
    times, rates = [], []
    for _ in range(rounds):
        times.append([timed(step) for step in steps])
        with products_for(CPU, precision):
            rates.append(multiply_add_rate(products()))
    seconds, most = [float(x) for x in np.median(times, axis=0)], float(np.median(rates))
    work = flops(N, length)
    row: dict[str, Any] = {
        "length": length,
        "milliseconds": round(seconds[0] * 1e3, 1),
        "tokens a second": round(2 * N * length / seconds[0]),
        "GFLOP/s": round(work / seconds[0] / 1e9, 1),
        "GFLOP/s of multiply-adds alone": round(most / 1e9, 1),
        "utilisation": round(work / seconds[0] / most, 2),
        "shares": {kind: round(share, 3) for kind, share in shares(ours).items()},
    }
    if compared:
        ratios = np.quantile([theirs / mine for mine, theirs in times], (0.25, 0.5, 0.75))
        row["PyTorch's milliseconds"] = round(seconds[1] * 1e3, 1)
        row["times PyTorch's speed"] = [round(float(q), 2) for q in ratios]
        row["the most that this ratio could be"] = round(most * seconds[1] / work, 2)
    return row


def step_table(rows: list[dict[str, Any]]) -> Table:
    """Make a table of the training step: a column per length.

    At the end, its time by work.
    """
    table = Table(title=f"Training step, {N} pairs, vocabulary {V:,}", title_justify="left")
    table.add_column("")
    for row in rows:
        table.add_column(f"length {row['length']}", justify="right")
    for name in rows[0]:
        if name not in ("length", "shares"):
            table.add_row(name, *(cell(name, row[name]) for row in rows))
    table.add_section()
    for kind in rows[0]["shares"]:
        table.add_row(f"time in {kind}", *(f"{row['shares'][kind]:.0%}" for row in rows))
    return table


def cell(name: str, value: Any) -> str:
    """Format one value of the table."""
    if isinstance(value, list):
        return f"{value[1]:.2f} ({value[0]:.2f}–{value[2]:.2f})"
    return f"{value:.0%}" if name == "utilisation" else f"{value:,}"


def flops(n: int, length: int) -> float:
    """Count the operations of a step's matrix products: three times those of the forward."""
    lengths = {"encoder": [length] * n, "decoder": [length] * n}
    return 3 * forward_operations(Seq2Seq(article_config()), lengths)


def forward_operations(model: nn.Module, lengths: Mapping[str, Sequence[int]]) -> float:
    """Count the operations of a forward pass's matrix products; a multiply-add is two.

    lengths: of the sequences that each stack reads. A training step takes three times as many.
    Causal attention counts in full.
    """
    last = "decoder" if hasattr(model, "decoder") else "encoder"
    products = 0
    for name, module in model.named_modules():
        stack = name.partition(".")[0]
        own = lengths[stack if stack in lengths else last]
        if isinstance(module, nn.Linear):
            products += sum(own) * module.weight.data.size
        elif isinstance(module, Attention):  # its output projection is a Linear
            c = module.config
            keys = lengths["encoder"] if name.endswith("multihead_attn") else own
            width, e = c.width, c.embed_dim
            products += sum(own) * width * e + sum(keys) * 2 * c.groups * c.head_width * e
            products += 2 * width * sum(n * m for n, m in zip(own, keys, strict=True))
    return 2.0 * products


def article_config(**changes: Any) -> Seq2SeqConfig:
    """Return the config of article 003's model, with changes."""
    config = Seq2SeqConfig(
        V, V, d_model=E, num_attention_heads=H, encoder_layers=LAYERS, decoder_layers=LAYERS,
        ffn_dim=F, positions="learned", max_position_embeddings=LONGEST, final_norm=False,
    )  # fmt: skip
    return replace(config, **changes)


def random_ids(length: int, vocabulary: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return random sources (N, length) and targets (N, length + 1), without padding."""
    draw, v = np.random.default_rng(0).integers, vocabulary or V
    return draw(3, v, (N, length)), draw(3, v, (N, length + 1))


def pellucid_trainer(
    config: Seq2SeqConfig, device: str = CPU, precision: Precision = "float32"
) -> Callable[[Batch], float]:
    """Return a function that trains one step on a batch and returns the mean loss."""
    model, settings, done = Seq2Seq(config), TrainingConfig(steps=1), 0
    place(model, device, precision)
    optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)

    def train(batch: Batch) -> float:
        nonlocal done
        done += 1
        with products_for(device, precision):
            tally, _ = train_step(model, optimizer, batch, settings, step=done, lr=5e-4)
        return tally.nats / tally.target_tokens

    return train


def pellucid_step(
    source: np.ndarray,
    target: np.ndarray,
    config: Seq2SeqConfig | None = None,
    precision: Precision = "float32",
) -> Callable[[], float]:
    """Return a function that trains one step on ids, (N, S) and (N, L + 1).

    It returns the mean loss.
    """
    batch = Batch(Packed.of(list(source)), Packed.of(list(target)))
    train = pellucid_trainer(config or article_config(), CPU, precision)
    return lambda: train(batch)


def torch_step(
    source: np.ndarray,
    target: np.ndarray,
    precision: Precision = "float32",
    compiled: bool = False,
) -> Callable[[], float]:
    """Return the same step in PyTorch; `compiled`: under torch.compile."""
    narrow = precision == "bfloat16"
    trainer = TorchTrainer(article_config(), available(), compiled, pad=-1, narrow=narrow)
    return lambda: trainer.step(source, target)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def shares(step: Callable[[], float]) -> dict[str, float]:
    """Return the share of a step's time by kind of work.

    "Python" is all outside kernels.
    """
    from pellucid.kernels.backend.compile import Kernel

    spent = dict.fromkeys([*KINDS.values(), "elementwise"], 0.0)
    plain, caller = Kernel.__call__, threading.get_ident()

    def measured(self: Kernel, *args: object) -> None:
        began = time.perf_counter()
        plain(self, *args)
        seconds = time.perf_counter() - began
        if threading.get_ident() == caller:  # helping threads wait inside their own kernel call
            spent[KINDS.get(self.function.__module__.rsplit(".", 1)[-1], "elementwise")] += seconds

    Kernel.__call__ = measured  # type: ignore[method-assign]
    try:
        whole = timed(step)
    finally:
        Kernel.__call__ = plain  # type: ignore[method-assign]
    return {
        **{kind: seconds / whole for kind, seconds in spent.items()},
        "Python": 1.0 - sum(spent.values()) / whole,
    }


if __name__ == "__main__":
    main()
