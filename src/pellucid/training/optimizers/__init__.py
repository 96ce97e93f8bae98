"""Optimizers: `OPTIMIZERS` has the record of each by its name."""

from __future__ import annotations

from pellucid.training.optimizers.adam import ADAM, ADAMW
from pellucid.training.optimizers.optimizer import Optimizer

OPTIMIZERS: dict[str, Optimizer] = {optimizer.name: optimizer for optimizer in (ADAM, ADAMW)}

__all__ = ["OPTIMIZERS", "Optimizer"]
