"""Transformer models: encoder-decoder, decoder-only, encoder-only, and classifier."""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
