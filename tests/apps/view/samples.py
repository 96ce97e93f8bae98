"""Small models to look into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pellucid import nn
from pellucid.data.tokenizers import Tokenizer, train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.tasks import CausalLMTask, ClassifierTask, MaskedLMTask, Seq2SeqTask

TEXTS = ["사랑이 뭐야?", "가나다라 마바사", "a bc"]
CONFIG = Seq2SeqConfig(
    source_vocab_size=11,
    target_vocab_size=13,
    d_model=15,
    num_attention_heads=3,
    encoder_layers=2,
    decoder_layers=2,
    ffn_dim=17,
    max_position_embeddings=19,
)


SIZES: dict[str, Any] = {
    "d_model": 12,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "ffn_dim": 17,
}
LONGEST = 23


def shaken(config: Seq2SeqConfig = CONFIG, dtype: Any = np.float32, by: float = 0.3) -> Seq2Seq:
    """A model none of whose parameters is special, so that no two heads have the same map."""
    model = Seq2Seq(config, seed=3, dtype=dtype)
    noise = np.random.default_rng(5)
    for parameter in model.parameters():
        draw = by * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + draw).astype(dtype)
    return model.eval()


def bpe() -> Tokenizer:
    """Pieces of single bytes: every Hangul syllable is three tokens."""
    return train_tokenizer(TEXTS, kind="bpe", vocab_size=260)


def speaking(tokenizer: Tokenizer | None = None, **search: Any) -> Seq2SeqTask:
    """An untrained model with a tokenizer for both sides."""
    tokenizer = tokenizer or train_tokenizer(TEXTS, kind="char")
    config = Seq2SeqConfig(
        tokenizer.vocab_size,
        tokenizer.vocab_size,
        d_model=12,
        num_attention_heads=3,
        encoder_layers=2,
        decoder_layers=2,
        ffn_dim=17,
        max_position_embeddings=23,
    )
    options = {"beam": 3, "max_length": 7, **search}
    return Seq2SeqTask(shaken(config), tokenizer, tokenizer, SearchConfig(**options))


def shake(model: nn.Module) -> None:
    """Give every head a different map."""
    noise = np.random.default_rng(5)
    for parameter in model.parameters():
        draw = 0.3 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + draw).astype(parameter.data.dtype)
    model.eval()


def gpt(
    kind: str = "char", texts: Sequence[str] = TEXTS, vocab_size: int = 260, **search: Any
) -> CausalLMTask:
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=vocab_size)
    config = CausalLMConfig(
        vocab_size=tokenizer.vocab_size, max_position_embeddings=LONGEST, **SIZES
    )
    model = CausalLM(config, seed=3, dtype=np.float64)
    shake(model)
    options: dict[str, Any] = {"beam": 3, "max_length": 7, **search}
    return CausalLMTask(model, tokenizer, tokenizer, SearchConfig(**options))


def bert(kind: str = "char", **settings: Any) -> MaskedLMTask:
    tokenizer = train_tokenizer(TEXTS, kind=kind, vocab_size=260)
    config = MaskedLMConfig(
        vocab_size=tokenizer.vocab_size + 1, max_position_embeddings=LONGEST, **SIZES, **settings
    )
    model = MaskedLM(config, seed=3, dtype=np.float64)
    shake(model)
    return MaskedLMTask.of(model, [tokenizer])


def labelling(labels: Literal["text", "token"] = "text") -> ClassifierTask:
    tokenizer = train_tokenizer(TEXTS, kind="char")
    names = train_tokenizer(
        ["fruit", "some word", "taxi"], "word" if labels == "token" else "label"
    )
    config = ClassifierConfig(
        vocab_size=tokenizer.vocab_size,
        label_vocab_size=names.vocab_size,
        labels=labels,
        max_position_embeddings=LONGEST,
        **SIZES,
    )
    model = Classifier(config, seed=3, dtype=np.float64)
    shake(model)
    return ClassifierTask.of(model, [tokenizer, names])
