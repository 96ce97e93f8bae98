"""A model small enough to write to disk in no time."""

from __future__ import annotations

from pathlib import Path

from pellucid.decoding import SearchConfig
from pellucid.model_folder import save_model
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.text.tokenizer import train_tokenizer
from pellucid.trained import Trained


def write_model(folder: Path) -> Path:
    """Write an untrained model of characters as a model folder."""
    tokens = train_tokenizer(["hello there"], "char", None, ())
    config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=12, ffn_dim=7,
                           num_attention_heads=3, encoder_layers=1, decoder_layers=1)  # fmt: skip
    save_model(folder, Trained(Seq2Seq(config).eval(), tokens, tokens, SearchConfig()), "")
    return folder
