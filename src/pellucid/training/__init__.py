"""Learning: optimisers, schedules, the loop, checkpoints that survive any moment."""

from pellucid.training.config import TrainingConfig
from pellucid.training.optimizers import Adam, DivergedError, OptimizerConfig
from pellucid.training.run import RunFolder, read_settings
from pellucid.training.schedules import ScheduleConfig
from pellucid.training.trainer import Result, Trainer

__all__ = [
    "Adam",
    "DivergedError",
    "OptimizerConfig",
    "Result",
    "RunFolder",
    "ScheduleConfig",
    "Trainer",
    "TrainingConfig",
    "read_settings",
]
