"""Trained models with their tokenizers: texts in, answers out."""

from pellucid.trained.causal_lm import TrainedCausalLM
from pellucid.trained.masked_lm import Blank, Guess, TrainedMaskedLM
from pellucid.trained.seq2seq import Trained
from pellucid.trained.speaking import Answer, Reading

AnyTrained = Trained | TrainedCausalLM | TrainedMaskedLM

__all__ = [
    "Answer",
    "AnyTrained",
    "Blank",
    "Guess",
    "Reading",
    "Trained",
    "TrainedCausalLM",
    "TrainedMaskedLM",
]
