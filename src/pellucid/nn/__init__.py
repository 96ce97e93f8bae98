"""Layers with the names and arguments of torch.nn; `layer.forward(x) -> (y, backward)`."""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
