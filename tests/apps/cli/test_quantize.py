"""`pellucid quantize` writes a smaller copy of a model, and copies a card that it cannot read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.apps.cli.main import main
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.quantize import dequantize, quantize
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.folder import save_model

FIXTURES = Path(__file__).parents[2] / "fixtures" / "huggingface"


@pytest.mark.parametrize(
    "card",
    ["# 카드\r\n".encode(), "# Café\n".encode("latin-1"), "\ufeff# 카드\n".encode("utf-16"), b""],
)
def test_a_card_stays_as_it_is(card: bytes, tmp_path: Path) -> None:
    tokens = train_tokenizer(["hello there"], "char", None, ())
    config = Seq2SeqConfig(tokens.vocab_size, tokens.vocab_size, d_model=12, ffn_dim=7,
                           num_attention_heads=3, encoder_layers=1, decoder_layers=1)  # fmt: skip
    old, new = tmp_path / "old", tmp_path / "new"
    save_model(old, Seq2SeqTask(Seq2Seq(config).eval(), tokens, tokens, SearchConfig()), "")
    (old / "README.md").write_bytes(card)
    assert main(["quantize", str(old), str(new)]) == 0
    assert (new / "README.md").read_bytes() == card


@pytest.mark.parametrize("family", ["llama", "bart"])
def test_a_model_of_hugging_faces_stays_one(family: str, tmp_path: Path) -> None:
    theirs = FIXTURES / family
    before = pellucid.load(theirs).model.state_dict()
    for weights, most in (("int8", 0.01), ("float16", 1e-3)):
        folder = tmp_path / weights
        assert main(["quantize", str(theirs), str(folder), "--weights", weights]) == 0
        smaller: Any = pellucid.load(folder)
        assert smaller.arithmetic == ("int8" if weights == "int8" else "float32")
        after = smaller.model.state_dict()
        for name, array in before.items():
            np.testing.assert_allclose(after[name], array, atol=most * np.abs(array).max())
        exact = dequantize(quantize(before, "int8"))
        same = [name for name in before if np.array_equal(after[name], exact[name])]
        assert ("output.weight" in same) == (weights == "int8")
    assert not (tmp_path / "int8" / "model.safetensors").exists()
    assert main(["export", str(tmp_path / "int8"), str(tmp_path / "x"), "--to", "huggingface"]) == 0
    assert (tmp_path / "x" / "model.safetensors").exists()
