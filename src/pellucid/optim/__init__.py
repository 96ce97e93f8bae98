"""Optimizers: `OPTIMIZERS` has a record for each, by name."""

from pellucid.core.parts import Registry
from pellucid.optim.adam import ADAM, ADAMW
from pellucid.optim.muon import MUON
from pellucid.optim.optimizer import Optimizer

OPTIMIZERS: Registry[Optimizer] = Registry({each.name: each for each in (ADAM, ADAMW, MUON)})

__all__ = ["OPTIMIZERS", "Optimizer"]
