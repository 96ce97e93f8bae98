"""One step of training.

A batch is processed in one or several parts, and their gradients of the *summed* loss are added.
One factor at the end combines clipping and the divisor of the loss. So splitting a batch changes
the result only by rounding. Dropout depends on (seed, step) and the example's number in the batch,
so it does not depend on the parts either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from pellucid.core.batch import Batch
from pellucid.core.errors import UserError
from pellucid.core.rng import Rng
from pellucid.models.model import Model
from pellucid.models.output import LossSum
from pellucid.optim.config import StepConfig
from pellucid.optim.model import ModelOptimizer, clip_factor


@dataclass
class Tally:
    """Statistics of training, summed over steps in their order."""

    nats: float = 0.0
    target_tokens: int = 0
    sentences: int = 0
    useful_tokens: int = 0
    steps: int = 0
    clipped: int = 0
    seconds: float = 0.0

    @property
    def loss(self) -> float:
        """The loss in nats per target token; 0 without any."""
        return self.nats / max(self.target_tokens, 1)

    @property
    def loss_per_sentence(self) -> float:
        """The loss in nats per target sentence, as article 003 prints it; 0 without any."""
        return self.nats / max(self.sentences, 1)

    def add(self, other: Tally) -> None:
        """Add the sums of `other`."""
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))


class DivergedError(UserError):
    """Training diverged: the loss or a gradient is not finite, or the loss exploded."""

    def __init__(self, what: str, step: int, lr: float) -> None:
        super().__init__(
            f"training diverged at step {step} (learning rate {lr:.3g}): {what}. "
            "Checkpoints written before are kept. Try a lower learning rate, a longer warm-up or a "
            "lower clipping limit"
        )


def train_step(
    model: Model,
    optimizer: ModelOptimizer,
    batch: Batch,
    config: StepConfig,
    *,
    step: int,
    lr: float,
) -> tuple[Tally, float]:
    """Compute the gradients of a batch and update the parameters.

    Gradients left from before are dropped. Returns the statistics of the step, without its
    `seconds`, and the norm of the gradient of the normalised loss, before clipping (to
    `config.optimizer.clip`). `step` is a part of dropout's random key.

    Raises `DivergedError`, with the parameters unchanged, when the loss or the gradient is not
    finite.
    """
    rng = Rng(config.seed).fold(step)
    optimizer.zero_grad()
    tally = Tally(sentences=len(batch), useful_tokens=batch.useful_tokens, steps=1)
    loss = _add_gradients(model, batch.split(config.accumulate), config, rng)
    if not math.isfinite(loss.nats):
        raise DivergedError(f"the loss is {loss.nats}", step, lr)
    tally.nats, tally.target_tokens = loss.nats, loss.tokens
    divisor = {"token": tally.target_tokens, "sentence": tally.sentences, "sum": 1}
    scale = 1.0 / max(divisor[config.loss_normalisation], 1)
    norm = optimizer.norm() * scale
    if not math.isfinite(norm):
        names = optimizer.not_finite()
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        listed = ", ".join(names[:3]) + more
        raise DivergedError(f"the gradient's norm is {norm} (in {listed})", step, lr)
    factor = clip_factor(norm, config.optimizer.clip)
    optimizer.step(lr, scale * factor)
    tally.clipped = int(factor < 1.0)
    return tally, norm


def _add_gradients(model: Model, pieces: Sequence[Batch], config: StepConfig, rng: Rng) -> LossSum:
    """Add the gradients of the summed loss of several batches; return the summed loss.

    Stops at the first loss that is not finite, without adding that batch's gradients.
    """
    nats, tokens = 0.0, 0
    for piece in pieces:
        loss, backward = model.loss(piece, rng, config.label_smoothing)
        nats += loss.nats
        tokens += loss.tokens
        if not math.isfinite(nats):
            break
        backward(1.0)
    return LossSum(nats, tokens)
