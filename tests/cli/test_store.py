"""`pellucid store` writes the same model in fewer bytes, and carries over what it does not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.cli.main import main
from pellucid.data.tokenizers import train_tokenizer
from pellucid.families.folder import save_model
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.pipelines import Seq2SeqPipeline


@pytest.mark.parametrize(
    "card",
    ["# 카드\r\n".encode(), "# Café\n".encode("latin-1"), "\ufeff# 카드\n".encode("utf-16"), b""],
)
def test_a_card_stays_as_it_is(card: bytes, tmp_path: Path) -> None:
    tokens = train_tokenizer(["hello there"], "char", None, ())
    config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=12, ffn_dim=7,
                           num_attention_heads=3, encoder_layers=1, decoder_layers=1)  # fmt: skip
    old, new = tmp_path / "old", tmp_path / "new"
    save_model(old, Seq2SeqPipeline(Seq2Seq(config).eval(), tokens, tokens, SearchConfig()), "")
    (old / "README.md").write_bytes(card)
    assert main(["store", str(old), str(new)]) == 0
    assert (new / "README.md").read_bytes() == card
