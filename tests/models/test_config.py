"""A config refuses what no model can be made of, and says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pellucid.core.errors import UsageError
from pellucid.models import CausalLMConfig, MaskedLMConfig, Seq2SeqConfig

SEQ2SEQ = Seq2SeqConfig(source_vocab_size=7, target_vocab_size=11)
CAUSAL = CausalLMConfig(vocab_size=13)
MASKED = MaskedLMConfig(vocab_size=17)


@pytest.mark.parametrize(
    ("config", "name", "token", "vocabulary"),
    [
        (SEQ2SEQ, "pad_token_id", 7, "source_vocab_size = 7"),
        (replace(SEQ2SEQ, source_vocab_size=19), "pad_token_id", 11, "target_vocab_size = 11"),
        (SEQ2SEQ, "bos_token_id", 11, "target_vocab_size = 11"),
        (SEQ2SEQ, "eos_token_id", 12, "target_vocab_size = 11"),
        *((CAUSAL, f"{name}_token_id", 13, "vocab_size = 13") for name in ("pad", "bos", "eos")),
        *((MASKED, f"{name}_token_id", 17, "vocab_size = 17") for name in ("bos", "eos", "mask")),
    ],
)
def test_a_special_token_is_one_of_the_vocabulary(
    config: Any, name: str, token: int, vocabulary: str
) -> None:
    message = f"{name} must be a token of the vocabulary, below {vocabulary}, got {token}"
    with pytest.raises(UsageError, match=message):
        replace(config, **{name: token})
    with pytest.raises(UsageError, match=f"{name} must be at least 0, got -1"):
        replace(config, **{name: -1})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"norm": "sandwich"}, "norm must be one of post, pre; got 'sandwich'"),
        ({"activation_function": "tan"}, "activation_function must be one of relu, .*got 'tan'"),
        ({"token_init": "xavir"}, "token_init must be one of xavier, 1/sqrt_d_model; got 'xavir'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"rope_theta": 1.0}, "rope_theta must be above 1, got 1.0"),
        ({"attention_softcap": 0.0}, "attention_softcap must be above 0, got 0.0"),
        ({"ffn_dim": 0}, "ffn_dim must be at least 1, got 0"),
        (
            {"end_token_ids": (3, 17)},
            r"end_token_ids must be a token of the vocabulary, below vocab_size = 17, got "
            r"\(3, 17\)",
        ),
        ({"masked_share": 1.5}, "masked_share must be above 0 and at most 1, got 1.5"),
    ],
)
def test_a_setting_is_in_its_range_and_a_word_one_of_its_words(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        replace(MASKED, **setting)


def test_the_last_token_of_a_vocabulary_may_be_special() -> None:
    assert replace(SEQ2SEQ, pad_token_id=6, bos_token_id=10).bos_token_id == 10
    assert replace(MASKED, mask_token_id=16).mask_id == 16


@pytest.mark.parametrize("kind", [Seq2SeqConfig, CausalLMConfig, MaskedLMConfig])
def test_before_the_vocabulary_is_known_any_token_may_be_special(kind: type) -> None:
    assert kind(eos_token_id=50256).eos_token_id == 50256


@pytest.mark.parametrize("positions", [2**20 + 1, 10**30])
def test_no_more_positions_than_a_table_of_them_can_hold(positions: int) -> None:
    message = f"max_position_embeddings must be at most 1048576, got {positions}"
    rotary = replace(SEQ2SEQ, positions="rotary")
    with pytest.raises(UsageError, match=message):
        replace(rotary, max_position_embeddings=positions)
    assert replace(rotary, max_position_embeddings=2**20).max_position_embeddings == 2**20


def test_a_fixed_table_of_positions_has_a_limit_of_numbers() -> None:
    wide = replace(SEQ2SEQ, d_model=512, max_position_embeddings=2**15)
    message = "max_position_embeddings must be at most 32768, got 32769"
    with pytest.raises(UsageError, match=message):
        replace(wide, max_position_embeddings=2**15 + 1)


@pytest.mark.parametrize(
    "name",
    ["layer_norm_eps", "attention_scale", "embedding_scale", "position_scale", "token_init",
     "position_init", "masked_share"],
)  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_is_finite(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} must be finite, got {value}"):
        replace(MASKED, **{name: value})
