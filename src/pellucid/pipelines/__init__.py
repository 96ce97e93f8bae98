"""Trained models with their tokenizers: texts in, answers out."""

from pellucid.pipelines.base import Answer, Pipeline, Reading
from pellucid.pipelines.causal_lm import CausalLMPipeline
from pellucid.pipelines.masked_lm import Blank, Guess, MaskedLMPipeline
from pellucid.pipelines.seq2seq import Seq2SeqPipeline

__all__ = [
    "Answer",
    "Blank",
    "CausalLMPipeline",
    "Guess",
    "MaskedLMPipeline",
    "Pipeline",
    "Reading",
    "Seq2SeqPipeline",
]
