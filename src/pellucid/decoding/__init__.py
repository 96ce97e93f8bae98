"""From a trained model to sentences."""

from pellucid.decoding.search import Hypothesis, SearchConfig, search

__all__ = ["Hypothesis", "SearchConfig", "search"]
