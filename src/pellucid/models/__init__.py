"""What people train."""

from pellucid.models.config import Seq2SeqConfig
from pellucid.models.seq2seq import LossSum, Seq2Seq, State

__all__ = ["LossSum", "Seq2Seq", "Seq2SeqConfig", "State"]
