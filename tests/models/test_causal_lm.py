"""The decoder alone: gradients, what it may see, and one token at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.whole_model import check_every_gradient, shake

from pellucid import Rng, nn, ops
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError
from pellucid.models import CausalLM, CausalLMConfig
from pellucid.nn import Recorder

BASE = CausalLMConfig(
    vocab_size=13,
    d_model=12,
    num_attention_heads=3,
    ffn_dim=17,
    num_hidden_layers=2,
    max_position_embeddings=19,
)
SOURCES = [[5, 6, 7, 5], [], [3, 3, 9, 8, 7, 10, 4]]
TARGETS = [[1, 4, 4, 12, 2], [1, 5, 6, 7, 8, 9, 2], [1, 2]]
BATCH = Batch(Packed.of(SOURCES), Packed.of(TARGETS))
VARIANTS: dict[str, dict[str, Any]] = {
    "GPT-2": {},
    "post-norm": {"norm": "post", "final_norm": False},
    "output untied": {"tie_word_embeddings": False, "output_bias": True},
    "sinusoidal": {"positions": "sinusoidal", "embedding_scale": "sqrt_d_model"},
    "learned scales": {"attention_scale": "learned"},
    "tanh, article 004": {"activation_function": "gelu_tanh", "ffn_before": 1, "ffn_after": 2},
}


def shaken(config: CausalLMConfig = BASE, dtype: Any = np.float64) -> CausalLM:
    model = CausalLM(config, seed=3, dtype=dtype)
    shake(model)
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameters_gradient_by_finite_differences(variant: str) -> None:
    model = shaken(replace(BASE, **VARIANTS[variant]))
    check_every_gradient(model, BATCH, entries=20 if variant == "GPT-2" else 3)


def test_the_loss_is_that_of_each_target_token_after_all_before_it() -> None:
    model = shaken().eval()
    loss, _ = model.loss(BATCH)
    nats, tokens = 0.0, 0
    for source, target in zip(SOURCES, TARGETS, strict=True):
        log_p, _ = ops.log_softmax(model(Packed.of([[*source, *target[:-1]]])))
        for i, token in enumerate(target[1:]):
            nats -= float(log_p[len(source) + i, token])
            tokens += 1
    assert loss.tokens == tokens
    assert loss.nats == pytest.approx(nats, rel=1e-12)


def test_a_later_token_never_changes_an_earlier_row() -> None:
    model = shaken().eval()
    text = [4, 6, 8, 10, 12, 5, 7]
    before, after = model(Packed.of([text])), model(Packed.of([[*text[:4], 3, *text[5:]]]))
    np.testing.assert_array_equal(before[:4], after[:4])
    assert (np.abs(before[4:] - after[4:]).max(axis=1) > 1e-3).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_token_at_a_time_equals_all_at_once(variant: str) -> None:
    model = shaken(replace(BASE, **VARIANTS[variant])).eval()
    said = [[1, 4, 4, 12], [1, 5, 6, 7], [1, 3, 9, 9]]
    read = SOURCES
    logits = model(Packed.of(read).followed_by(Packed.of(said)))
    log_p, _ = ops.log_softmax(logits)
    ends = np.cumsum([len(r) + 4 for r in read])
    expected = np.stack([log_p[end - 4 : end] for end in ends])
    state = model.start(Packed.of(read))
    for t in range(4):
        step, state = model.step(state, np.array([s[t] for s in said]))
        np.testing.assert_allclose(step, expected[:, t], rtol=0, atol=1e-12)
        if t == 1:  # hypotheses change places, as in a beam
            order = np.array([2, 0, 1])
            state, expected, said = state.select(order), expected[order], [said[i] for i in order]


def test_packed_rows_and_torchs_padded_road_are_equal() -> None:
    model, rng = shaken(), Rng(2)
    text = Packed.of([[4, 5, 6], [7, 8, 9, 10, 11]])
    x = np.random.default_rng(0).standard_normal((8, 12))
    padding = np.arange(5) >= text.lengths[:, None]
    padded = np.zeros((2, 5, 12))
    padded[~padding] = x
    packed, packed_backward = model.decoder.run(
        x, nn.Context(cu_seqlens=text.cu_seqlens, causal=True, rng=rng.at(text.rows))
    )
    out, out_backward = model.decoder.forward(
        padded, is_causal=True, src_key_padding_mask=padding, rng=rng
    )
    np.testing.assert_allclose(out[~padding], packed, rtol=0, atol=1e-13)
    dout = np.zeros_like(out)
    dout[~padding] = np.random.default_rng(1).standard_normal(packed.shape)
    dx = out_backward(dout)
    np.testing.assert_allclose(dx[~padding], packed_backward(dout[~padding])[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_batch_is_its_texts_one_at_a_time(dtype: Any, tolerance: float) -> None:
    model, rng = shaken(dtype=dtype), Rng(11)
    loss, backward = model.loss(BATCH, rng)
    backward(1.0)
    whole = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    nats = 0.0
    for i in range(len(BATCH)):
        part, part_backward = model.loss(
            Batch(BATCH.source.select([i]), BATCH.target.select([i])), rng
        )
        part_backward(1.0)
        nats += part.nats
    assert nats == pytest.approx(loss.nats, rel=tolerance)
    scale = max(np.abs(g).max() for g in whole.values() if g is not None)
    for name, parameter in model.named_parameters():
        assert np.abs(parameter.grad - whole[name]).max() <= tolerance * scale, name


def test_its_heads_are_recorded() -> None:
    with Recorder() as recorder:
        _, backward = shaken().eval().loss(BATCH)
    backward(1.0)
    assert sorted(recorder.maps) == ["decoder.layers.0.self_attn", "decoder.layers.1.self_attn"]
    seen = recorder.maps["decoder.layers.1.self_attn"]
    assert seen.causal
    assert seen.dscores is not None
    assert np.abs(seen.dscores).max() > 0


def test_positions_end() -> None:
    model = shaken(replace(BASE, max_position_embeddings=5)).eval()
    with pytest.raises(ValueError, match="longer than the model's 5 positions"):
        model(Packed.of([[4, 4, 4, 4, 4, 4]]))
    assert model.room(Packed.of([[], [4, 4]])).tolist() == [4, 2]


@pytest.mark.parametrize("wrong", [{"vocab_size": -1}, {"num_hidden_layers": -1}, {"dropout": 1.0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
        replace(BASE, **wrong)


def test_a_text_read_in_pieces_through_the_cache_equals_the_text_read_at_once() -> None:
    """Several new rows after cached ones: each sees all before it, and none after."""
    model = shaken().eval()
    x = np.random.default_rng(0).standard_normal((8, 12))
    whole, _ = model.decoder.run(x, nn.Context(cu_seqlens=np.array([0, 3, 8]), causal=True))
    cache, found = nn.Cache(), []
    for rows, cu in (([0, 3, 4], [0, 1, 3]), ([1, 2, 5, 6, 7], [0, 2, 5])):
        context = nn.Context(cu_seqlens=np.array(cu), causal=True, cache=cache, inference=True)
        y, _ = model.decoder.run(x[rows], context)
        found.append((rows, y))
    for rows, y in found:
        np.testing.assert_allclose(y, whole[rows], rtol=0, atol=1e-12)
