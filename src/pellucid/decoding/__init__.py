"""From a trained model to sentences."""

from pellucid.decoding.constraints import Constraints
from pellucid.decoding.sample import SampleConfig, sample, sample_stream
from pellucid.decoding.search import Hypothesis, SearchConfig, search

__all__ = [
    "Constraints",
    "Hypothesis",
    "SampleConfig",
    "SearchConfig",
    "sample",
    "sample_stream",
    "search",
]
