"""A model that has learnt, in seconds, to say Hangul and emoji backwards: attention to look at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from pellucid.core.batch import Batch, Packed
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim.config import OptimizerConfig, ScheduleConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.training.config import TrainingConfig
from pellucid.training.trainer import Trainer

LETTERS = "가나다라마바사아자차카타파하😀🌊abc"
STEPS, SIZE = 500, 32


class Reversals:
    """Strings of three to eight letters and their reversals."""

    def __init__(self) -> None:
        self.tokenizer = train_tokenizer([LETTERS], kind="char")

    def epoch(self, number: int) -> Sequence[Batch]:
        g = np.random.default_rng((0, number))
        return [self._batch(g) for _ in range(STEPS)]

    def _batch(self, g: np.random.Generator) -> Batch:
        words = ["".join(g.choice(list(LETTERS), g.integers(3, 9))) for _ in range(SIZE)]
        ids = self.tokenizer.encode_all(words)
        return Batch(Packed.of(ids), Packed.of([[1, *word[::-1], 2] for word in ids]))


@cache
def reversing() -> Seq2SeqTask:
    """The model, trained once for all files: one that changes it takes a copy."""
    data = Reversals()
    entries = data.tokenizer.vocab_size
    config = Seq2SeqConfig(
        entries,
        entries,
        d_model=32,
        num_attention_heads=4,
        encoder_layers=2,
        decoder_layers=2,
        ffn_dim=64,
        dropout=0.0,
        max_position_embeddings=16,
        tie_embeddings="all",
    )
    model = Seq2Seq(config)
    training = TrainingConfig(
        steps=STEPS,
        optimizer=OptimizerConfig("adamw"),
        schedule=ScheduleConfig("cosine", lr=4e-3, warmup=40),
    )
    Trainer(model, data, training).fit()
    return Seq2SeqTask(
        model.eval(), data.tokenizer, data.tokenizer, SearchConfig(beam=3, max_length=14)
    )
