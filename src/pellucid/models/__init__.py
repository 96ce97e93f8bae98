"""What people train."""

from pellucid.models.causal_lm import CausalLM
from pellucid.models.classifier import Classifier
from pellucid.models.config import CausalLMConfig, ClassifierConfig, MaskedLMConfig, Seq2SeqConfig
from pellucid.models.masked_lm import MaskedLM
from pellucid.models.model import State
from pellucid.models.output import LossSum
from pellucid.models.seq2seq import Seq2Seq

__all__ = [
    "CausalLM",
    "CausalLMConfig",
    "Classifier",
    "ClassifierConfig",
    "LossSum",
    "MaskedLM",
    "MaskedLMConfig",
    "Seq2Seq",
    "Seq2SeqConfig",
    "State",
]
