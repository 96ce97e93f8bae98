"""A model small enough to write to disk in no time, and a prefix of given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.prefix import FREE, Prefix
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import save_model


def write_model(folder: Path, seed: int = 0) -> Path:
    """Write an untrained model of characters as a model folder."""
    tokens = train_tokenizer(["hello there"], "char", None, ())
    config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=12, ffn_dim=7,
                           num_attention_heads=3, encoder_layers=1, decoder_layers=1)  # fmt: skip
    model = Seq2Seq(config, seed=seed).eval()
    save_model(folder, Seq2SeqTask(model, tokens, tokens, SearchConfig()), "")
    return folder


def exactly(tokens: Sequence[int]) -> Prefix:
    """The prefix that only these tokens write."""
    count = len(tokens)
    after = [*range(1, count), FREE]
    return Prefix([{t: state} for t, state in zip(tokens, after, strict=True)], range(count, 0, -1))
