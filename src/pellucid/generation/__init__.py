"""From a trained model to sentences."""

from pellucid.generation.answers import Decodes, Hypothesis, SearchConfig
from pellucid.generation.constraints import Constraints
from pellucid.generation.prepare import prepared
from pellucid.generation.sampling import SampleConfig, sample, sample_stream
from pellucid.generation.search import search

__all__ = [
    "Constraints",
    "Decodes",
    "Hypothesis",
    "SampleConfig",
    "SearchConfig",
    "prepared",
    "sample",
    "sample_stream",
    "search",
]
