"""Optimizers: `OPTIMIZERS` has the record of each by its name."""

from __future__ import annotations

from pellucid.core.parts import Registry
from pellucid.training.optimizers.adam import ADAM, ADAMW
from pellucid.training.optimizers.optimizer import Optimizer

OPTIMIZERS: Registry[Optimizer] = Registry({each.name: each for each in (ADAM, ADAMW)})

__all__ = ["OPTIMIZERS", "Optimizer"]
