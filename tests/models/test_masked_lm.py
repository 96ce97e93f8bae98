"""The encoder alone: gradients, what is hidden and how it is keyed, and vectors for texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.whole_model import check_every_gradient, shake

from pellucid import Rng, nn
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError, UserError
from pellucid.models import MaskedLM, MaskedLMConfig
from pellucid.models.masked_lm import mask_tokens

BASE = MaskedLMConfig(
    vocab_size=13,
    d_model=12,
    num_attention_heads=3,
    ffn_dim=17,
    num_hidden_layers=2,
    max_position_embeddings=19,
    masked_share=0.4,
)
TEXTS = [[1, 4, 4, 11, 2], [1, 5, 6, 7, 8, 9, 2], [1, 10, 2]]
BATCH = Batch(Packed.of([[], [], []]), Packed.of(TEXTS))
VARIANTS: dict[str, dict[str, Any]] = {
    "BERT": {"type_vocab_size": 2},
    "pre-norm": {"norm": "pre", "final_norm": True, "embedding_norm": False},
    "output untied": {"tie_word_embeddings": False, "output_bias": False},
    "sinusoidal, relu": {"positions": "sinusoidal", "activation_function": "relu"},
}


def shaken(config: MaskedLMConfig = BASE, dtype: Any = np.float64) -> MaskedLM:
    model = MaskedLM(config, seed=3, dtype=dtype)
    shake(model)
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameters_gradient_by_finite_differences(variant: str) -> None:
    model = shaken(replace(BASE, **VARIANTS[variant]))
    check_every_gradient(model, BATCH, entries=20 if variant == "BERT" else 3)


def test_rows_look_both_ways_and_never_into_another_text() -> None:
    model = shaken().eval()
    before = model(Packed.of(TEXTS))
    after = model(Packed.of([TEXTS[0], [*TEXTS[1][:5], 12, 2], TEXTS[2]]))
    assert (np.abs(before[5:12] - after[5:12]).max(axis=1) > 1e-3).all()
    np.testing.assert_allclose(before[:5], after[:5], rtol=0, atol=1e-13)
    np.testing.assert_allclose(before[12:], after[12:], rtol=0, atol=1e-13)


def test_packed_rows_and_torchs_padded_road_are_equal() -> None:
    model, rng = shaken(), Rng(2)
    text = Packed.of(TEXTS)
    x = np.random.default_rng(0).standard_normal((15, 12))
    padding = np.arange(7) >= text.lengths[:, None]
    padded = np.zeros((3, 7, 12))
    padded[~padding] = x
    packed, _ = model.encoder.run(x, nn.Context(cu_seqlens=text.cu_seqlens, rng=rng.at(text.rows)))
    out, _ = model.encoder.forward(padded, src_key_padding_mask=padding, rng=rng)
    np.testing.assert_allclose(out[~padding], packed, rtol=0, atol=1e-13)


def test_segments_change_the_rows() -> None:
    model = shaken(replace(BASE, type_vocab_size=2)).eval()
    text = Packed.of(TEXTS)
    plain = model(text)
    np.testing.assert_array_equal(plain, model(text, np.zeros(15, np.int64)))
    second = np.zeros(15, np.int64)
    second[3:5] = 1
    assert np.abs(plain[:5] - model(text, second)[:5]).max() > 1e-2
    with pytest.raises(ValueError, match="type_vocab_size"):
        shaken().eval()(text, second)


def a_long_text(n: int = 20000) -> Packed:
    g = np.random.default_rng(0)
    return Packed.of([[1, *g.integers(4, 97, 17), 2] for _ in range(n // 17)])


def test_of_the_chosen_eight_tenths_are_masked_one_changed_one_left() -> None:
    config = replace(BASE, vocab_size=97, masked_share=0.15)
    text = a_long_text()
    masked = mask_tokens(text, config, Rng(1))
    now = masked.text.tokens[masked.chosen]
    n = len(masked.chosen)
    assert n == len(text) * round(0.15 * 17)
    np.testing.assert_array_equal(masked.wanted, text.tokens[masked.chosen])
    left = now == masked.wanted
    assert abs((now == config.mask_id).mean() - 0.8) < 0.02
    # one changed in 92 becomes what it was
    assert abs(left.mean() - 0.1) < 0.02
    changed = now[(now != config.mask_id) & ~left]
    assert set(changed) < {3, *range(4, 96)}  # neither the mask nor begin, end, padding
    assert len(set(changed)) > 80
    untouched = np.delete(np.arange(len(text.tokens)), masked.chosen)
    np.testing.assert_array_equal(masked.text.tokens[untouched], text.tokens[untouched])
    assert not {1, 2} & set(masked.wanted)
    places = np.bincount(text.positions[masked.chosen], minlength=19)[1:-1]
    assert places.min() > 0.7 * places.mean()


def test_what_is_hidden_is_keyed_by_example_and_position() -> None:
    """A batch in parts, or in another order, hides the same tokens."""
    config = replace(BASE, vocab_size=97)
    text = a_long_text(500)
    whole = mask_tokens(text, config, Rng(1)).text
    order = np.random.default_rng(0).permutation(len(text))
    for part in (order[:11], order[11:]):
        hidden = mask_tokens(text.select(part), config, Rng(1)).text
        np.testing.assert_array_equal(hidden.tokens, whole.select(part).tokens)
    assert (mask_tokens(text, config, Rng(2)).text.tokens != whole.tokens).any()


def test_a_text_of_nothing_to_hide_asks_nothing() -> None:
    masked = mask_tokens(Packed.of([[1, 2], [1, 5, 2], []]), BASE, Rng(0))
    assert masked.chosen.tolist() == [3]
    loss, backward = shaken().eval().loss(Batch(Packed.of([[]]), Packed.of([[1, 2]])))
    backward(1.0)
    assert loss == (0.0, 0)


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


def test_vectors_are_means_firsts_or_pooled() -> None:
    model = shaken(replace(BASE, pooler=True, head=False)).eval()
    text = Packed.of(TEXTS)
    rows, _ = model.rows(text)
    parts = np.split(rows, text.cu_seqlens[1:-1])
    means = model.embeddings(text)
    np.testing.assert_allclose(means, [part.mean(axis=0) for part in parts], rtol=0, atol=1e-14)
    first = model.embeddings(text, "first")
    np.testing.assert_array_equal(first, [part[0] for part in parts])
    assert model.pooler is not None
    weight, bias = model.pooler.weight.data, model.pooler.bias
    assert bias is not None
    np.testing.assert_allclose(
        model.embeddings(text, "pooler"), np.tanh(first @ weight.T + bias.data), atol=1e-14
    )


def test_what_a_model_cannot_do_is_said() -> None:
    headless = shaken(replace(BASE, head=False)).eval()
    with pytest.raises(UserError, match="no layer that predicts tokens"):
        headless(Packed.of(TEXTS))
    with pytest.raises(UserError, match="no pooler"):
        headless.embeddings(Packed.of(TEXTS), "pooler")
    with pytest.raises(ValueError, match="text 1 has no tokens"):
        headless.embeddings(Packed.of([[1, 2], []]))


@pytest.mark.parametrize("wrong", [{"masked_share": 0.0}, {"type_vocab_size": -1}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
        replace(BASE, **wrong)
