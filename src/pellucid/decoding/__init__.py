"""From a trained model to sentences."""

from pellucid.decoding.answers import Decodes, Hypothesis, SearchConfig
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.prepare import prepared
from pellucid.decoding.sample import SampleConfig, sample, sample_stream
from pellucid.decoding.search import search

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
