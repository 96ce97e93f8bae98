"""From a trained model to sentences."""

from pellucid.generation.constraints import Constraints
from pellucid.generation.model import Decodes, compile_model
from pellucid.generation.sampling import SampleConfig, sample, sample_stream
from pellucid.generation.search import Hypothesis, SearchConfig, search

__all__ = [
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
