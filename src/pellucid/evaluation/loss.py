"""The loss on held-out batches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pellucid.core.batch import Batch


def held_out_loss(model: Any, batches: Iterable[Batch]) -> float:
    """Return the loss in nats per target token, with dropout and label smoothing off.

    The model is left in eval mode.
    """
    model.eval()
    return mean_loss(loss_sum(model, batch) for batch in batches)


def loss_sum(model: Any, batch: Batch) -> tuple[float, int]:
    """Return the summed loss of a batch, in nats, and how many target tokens it has."""
    loss, _ = model.loss(batch)
    return loss.nats, loss.tokens


def mean_loss(sums: Iterable[tuple[float, float]]) -> float:
    """Return the nats per token of several batches, added in their order.

    >>> mean_loss([(1.0, 2), (3.0, 2)])
    1.0
    """
    nats, tokens = 0.0, 0.0
    for more, count in sums:
        nats += more
        tokens += count
    return nats / max(tokens, 1)
