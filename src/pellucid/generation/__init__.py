"""Generate answers with a trained model: greedy and beam search, sampling, ensembles."""

from pellucid.core.names import exported

__all__, __getattr__ = exported(__name__, __file__)
