"""From a trained model to sentences."""

from pellucid.generation.model import compile_model
from pellucid.generation.sampling import SampleConfig, sample, sample_stream
from pellucid.generation.search import search
from pellucid.models.decoding import GREEDY, Constraints, Decodes, Hypothesis, SearchConfig

__all__ = [
    "GREEDY",
    "Constraints",
    "Decodes",
    "Hypothesis",
    "SampleConfig",
    "SearchConfig",
    "compile_model",
    "sample",
    "sample_stream",
    "search",
]
