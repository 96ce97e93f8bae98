"""Learning: optimisers, schedules, the loop, checkpoints that survive any moment."""

from pellucid.training.config import OptimizerConfig, ScheduleConfig, TrainingConfig
from pellucid.training.optimizers import OPTIMIZERS
from pellucid.training.optimizers.model import ModelOptimizer
from pellucid.training.run import RunFolder, read_settings
from pellucid.training.step import DivergedError
from pellucid.training.trainer import Result, Trainer

__all__ = [
    "OPTIMIZERS",
    "DivergedError",
    "ModelOptimizer",
    "OptimizerConfig",
    "Result",
    "RunFolder",
    "ScheduleConfig",
    "Trainer",
    "TrainingConfig",
    "read_settings",
]
