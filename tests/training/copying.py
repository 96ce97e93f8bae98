"""A task small enough to learn in seconds: say the source backwards. Run as a script, it trains."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.batch import Batch, Packed
from pellucid.core.settings import to_mapping
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim.config import OptimizerConfig, ScheduleConfig
from pellucid.training.config import TrainingConfig
from pellucid.training.events import Event, Stepped
from pellucid.training.run import RunFolder
from pellucid.training.trainer import Trainer

BOS, EOS, FIRST, VOCABULARY = 1, 2, 3, 11
MODEL = Seq2SeqConfig(
    VOCABULARY,
    VOCABULARY,
    d_model=12,
    num_attention_heads=3,
    encoder_layers=1,
    decoder_layers=1,
    ffn_dim=17,
    dropout=0.1,
    tie_embeddings="all",
)
TRAIN = TrainingConfig(
    steps=60,
    seed=5,
    optimizer=OptimizerConfig("adamw"),
    schedule=ScheduleConfig("cosine", lr=1e-2, warmup=7),
    log_every=3,
    validate_every=10,
    validate_unit="steps",
    checkpoint_every=4,
    label_smoothing=0.1,
)


class Reversals:
    """Batches of random strings and their reversals, drawn again in every epoch."""

    def __init__(self, batches: int = 13, size: int = 7, seed: int = 0) -> None:
        self.batches, self.size, self.seed = batches, size, seed

    def epoch(self, number: int) -> Sequence[Batch]:
        g = np.random.default_rng((self.seed, number))
        return [self._batch(g) for _ in range(self.batches)]

    def _batch(self, g: np.random.Generator) -> Batch:
        lengths = g.integers(1, 6, self.size)
        words = [g.integers(FIRST, VOCABULARY, n).tolist() for n in lengths]
        return Batch(Packed.of(words), Packed.of([[BOS, *word[::-1], EOS] for word in words]))


def model(**changes: Any) -> Seq2Seq:
    return Seq2Seq(replace(MODEL, **changes), seed=3)


def held_out() -> Sequence[Batch]:
    return Reversals(2, seed=1).epoch(0)


def settings(config: TrainingConfig = TRAIN) -> dict[str, Any]:
    return {"model": to_mapping(MODEL), "training": to_mapping(config)}


RESUMED = replace(TRAIN, optimizer=OptimizerConfig("adamw"), use="ema")
"""What a run keeps at most: the optimizer's states and the average of the weights."""


def main(folder: str, resume: str, slowly: str) -> None:
    """Train; `slowly` waits in every step, so that a signal finds training under way."""

    def listener(event: Event) -> None:
        if isinstance(event, Stepped):
            print(event.step, flush=True)
            time.sleep(float(slowly))

    with RunFolder(Path(folder), settings(RESUMED), resume=bool(resume)) as run:
        trainer = Trainer(
            learner := model(),
            Reversals(),
            RESUMED,
            validation=held_out(),
            run=run,
            listeners=[listener],
        )
        result = trainer.fit()
        print(result.reason, flush=True)
    if result.interrupted is None:
        np.savez(Path(folder) / "final.npz", **learner.state_dict())


if __name__ == "__main__":
    main(*sys.argv[1:])
