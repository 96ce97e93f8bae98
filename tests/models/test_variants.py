"""A variant that is one page and one row works in every use: training, decoding, files, export."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.test_attention_function import NEAR
from tests.models.whole_model import check_every_gradient, shake

from pellucid.core.batch import Batch, Packed
from pellucid.generation import SearchConfig, compile_model, search
from pellucid.kernels.add_dropout_norm import CENTRED
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.models.positions import POSITIONS
from pellucid.models.walk import stacks_of
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.ops.rules.function import FUNCTIONS

BATCH = Batch(Packed.of([[5, 6, 7], [8, 9]]), Packed.of([[1, 4, 11, 2], [1, 7, 2]]))
VARIANTS: list[dict[str, Any]] = [
    *({"norm_type": name} for name in NORMS if name in CENTRED),
    *({"activation_function": name} for name in ACTIVATIONS),
    *({"positions": name} for name in POSITIONS),
    {"num_key_value_heads": 1},
    {"head_dim": 6},
    {"qk_norm": True},
    {"attention_softcap": 1.5},
    {"sliding_window": 2},
    {"linear_bias": False},
    {"qkv_bias": False},
    {"positions": "alibi", "sliding_window": 2, "attention_softcap": 1.5},
    {"positions": "rotary", "rope_theta": 50.0, "num_key_value_heads": 1, "qk_norm": True},
    {"positions": "rotary", "rope_factor": 4.0},
    {"positions": "rotary_cross", "num_key_value_heads": 1, "qk_norm": True},
    {
        "positions": "relative",
        "relative_attention_num_buckets": 4,
        "relative_attention_max_distance": 5,
        "sliding_window": 3,
    },
]
OWN: list[dict[str, Any]] = [
    *({"norm_type": name} for name in NORMS if name not in CENTRED),
    {"attention_sinks": True},
    {"attention_function": "near", "sliding_window": 3},
]
"""Those that compiled search and other programs do not know."""
every_variant = pytest.mark.parametrize(
    "variant", [*VARIANTS, *OWN], ids=lambda v: ", ".join(f"{k} {x}" for k, x in v.items())
)


@pytest.fixture(autouse=True)
def _known_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "near", NEAR)


SIZES: dict[str, Any] = {"d_model": 12, "num_attention_heads": 3, "ffn_dim": 7}


def seq2seq(variant: dict[str, Any], dtype: Any = np.float64) -> Seq2Seq:
    config = Seq2SeqConfig(17, 19, encoder_layers=1, decoder_layers=2, dropout=0.2, **SIZES)
    model = Seq2Seq(replace(config, **variant), dtype=dtype)
    shake(model)
    return model


@every_variant
@pytest.mark.parametrize("placement", ["post", "pre"])
def test_every_gradient(variant: dict[str, Any], placement: str) -> None:
    model = seq2seq({**variant, "norm": placement})
    check_every_gradient(model, BATCH, entries=0)  # test_seq2seq looks at entries one by one


@every_variant
def test_packed_equals_one_by_one_and_step_by_step(variant: dict[str, Any]) -> None:
    model = seq2seq(variant).eval()
    rows, _ = model.decode_rows(BATCH)
    log_p = rows @ model.output.weight.data.T + model.output.bias.data
    log_p = log_p - np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    state, found = model.start(BATCH.source), []
    for tokens in ([1, 1], [4, 7], [11, 0]):
        step, state = model.step(state, np.array(tokens))
        found.append(step)
    expected = [log_p[0], log_p[1], log_p[2], log_p[3], log_p[4]]
    ours = [found[0][0], found[1][0], found[2][0], found[0][1], found[1][1]]
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10)


@every_variant
def test_a_causal_lm_reads_a_text_at_once_as_token_by_token(variant: dict[str, Any]) -> None:
    model = CausalLM(replace(CausalLMConfig(vocab_size=19, **SIZES), **variant), dtype=np.float64)
    shake(model)
    text = [1, 5, 7, 9]
    whole, _ = model.eval().step(model.start(Packed.of([text])), np.array([4]))
    state = model.start(Packed.of([[]]))
    for token in text:
        _, state = model.step(state, np.array([token]))
    np.testing.assert_allclose(model.step(state, np.array([4]))[0], whole, rtol=0, atol=1e-10)


@every_variant
def test_answers_do_not_depend_on_the_batch_or_on_compilation(variant: dict[str, Any]) -> None:
    model = seq2seq(variant, np.float32).eval()
    config = SearchConfig(beam=2, max_length=5)
    together = search(model, BATCH.source, config)
    alone = [search(model, BATCH.source.select([i]), config)[0] for i in range(2)]
    assert [[h.tokens for h in hs] for hs in together] == [[h.tokens for h in hs] for hs in alone]
    plain = seq2seq(variant, np.float64).eval()
    for one, other in zip(together, search(plain, BATCH.source, config), strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
    assert (compile_model(model) is not model) == (variant not in OWN)


@every_variant
def test_the_walk_reaches_every_array(variant: dict[str, Any]) -> None:
    assert list(stacks_of(seq2seq(variant))) == ["encoder", "decoder"]  # raises for one it misses
