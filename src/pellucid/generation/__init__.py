"""From a trained model to sentences."""

from pellucid.generation.ensemble import Ensemble, mean_probability
from pellucid.generation.model import compile_model, stepped
from pellucid.generation.sampling import SampleConfig, sample, sample_stream
from pellucid.generation.search import search
from pellucid.models.decoding import GREEDY, Constraints, Decodes, Hypothesis, SearchConfig

__all__ = [
    "GREEDY",
    "Constraints",
    "Decodes",
    "Ensemble",
    "Hypothesis",
    "SampleConfig",
    "SearchConfig",
    "compile_model",
    "mean_probability",
    "sample",
    "sample_stream",
    "search",
    "stepped",
]
