"""Tasks, one per kind of model: `TASKS` has the class of each by `model_type`."""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
