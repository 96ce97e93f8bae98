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
    nats, tokens = 0.0, 0
    for batch in batches:
        loss, _ = model.loss(batch)
        nats += loss.nats
        tokens += loss.tokens
    return nats / max(tokens, 1)
