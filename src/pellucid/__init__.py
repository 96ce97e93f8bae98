"""Pellucid: the Transformer built from nothing in Python, every derivative by hand."""

from pellucid import nn, ops
from pellucid.kernels import reference
from pellucid.pair import pair
from pellucid.rng import Rng

__version__ = "0.1.0"
__all__ = ["Rng", "nn", "ops", "pair", "reference"]
