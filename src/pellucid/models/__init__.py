"""Models to train."""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
