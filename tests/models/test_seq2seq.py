"""The whole model: every parameter's gradient, nothing seen that must not be, batch = sentences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.whole_model import check_every_gradient, shake

from pellucid import Rng, nn, ops
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UsageError
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.nn import Recorder

BASE = Seq2SeqConfig(
    source_vocab_size=11,
    target_vocab_size=13,
    d_model=12,
    num_attention_heads=3,
    ffn_dim=17,
    encoder_layers=2,
    decoder_layers=2,
    max_position_embeddings=19,
)
SOURCES = [[5, 6, 7, 5], [4], [3, 3, 9, 8, 7, 10, 4]]
TARGETS = [[1, 4, 4, 12, 2], [1, 5, 6, 7, 8, 9, 2], [1, 2]]
BATCH = Batch(Packed.of(SOURCES), Packed.of(TARGETS))
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper": {},
    "article 003": {"positions": "learned", "final_norm": False, "attention_init": "separate"},
    "pre-norm": {"norm": "pre"},
    "d_k, no embedding scale": {"attention_scale": "d_k", "embedding_scale": 1.0},
    "d_k^2, positions scaled": {
        "attention_scale": "d_k^2",
        "positions": "learned",
        "position_scale": "1/sqrt_d_model",
    },
    "unscaled scores": {"attention_scale": "none"},
    "learned scales": {"attention_scale": "learned"},
    "gelu": {"activation_function": "gelu"},
    "article 004": {"ffn_before": 2, "ffn_after": 2},
    "all tied": {"tie_embeddings": "all", "source_vocab_size": 13},
    "output tied": {"tie_embeddings": "output", "output_bias": False},
    "input tied": {"tie_embeddings": "input", "source_vocab_size": 13},
    "dropout placed": {
        "dropout": 0.0,
        "embedding_dropout": 0.3,
        "attention_dropout": 0.2,
        "activation_dropout": 0.1,
    },
    "padding row": {"padding_row_zero": True},
    "tied padding row": {"padding_row_zero": True, "tie_embeddings": "output"},
}


def shaken(config: Seq2SeqConfig, dtype: Any = np.float64) -> Seq2Seq:
    """A model none of whose parameters is special."""
    model = Seq2Seq(config, seed=3, dtype=dtype)
    shake(model)
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameters_gradient_by_finite_differences(variant: str) -> None:
    model = shaken(replace(BASE, **VARIANTS[variant]))
    check_every_gradient(model, BATCH, entries=6 if variant == "the paper" else 1)


def test_seed_003s_model_has_its_number_of_parameters() -> None:
    config = Seq2SeqConfig(
        10194, 10194, positions="learned", max_position_embeddings=50, final_norm=False
    )
    model = Seq2Seq(config)
    assert sum(p.data.size for p in model.parameters()) == 11_818_450


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_later_target_token_never_changes_an_earlier_output(norm: str) -> None:
    model = shaken(replace(BASE, norm=norm)).eval()
    rows, _ = model.decode_rows(BATCH)
    changed = [list(t) for t in TARGETS]
    changed[1][3] = 11
    other, _ = model.decode_rows(Batch(BATCH.source, Packed.of(changed)))
    start = BATCH.target.without_last().cu_seqlens[1]
    unaffected = [i for i in range(len(rows)) if not start + 3 <= i < start + 6]
    np.testing.assert_array_equal(rows[unaffected], other[unaffected])
    assert np.abs(rows[start + 3 : start + 6] - other[start + 3 : start + 6]).max() > 1e-3


def test_the_decoder_reads_the_source() -> None:
    model = shaken(BASE).eval()
    rows, _ = model.decode_rows(BATCH)
    changed = [list(s) for s in SOURCES]
    changed[0][2] = 9
    other, _ = model.decode_rows(Batch(Packed.of(changed), BATCH.target))
    assert np.abs(rows[:4] - other[:4]).max() > 1e-3
    np.testing.assert_allclose(rows[4:], other[4:], rtol=0, atol=1e-13)


@pytest.mark.parametrize("variant", ["the paper", "learned scales"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_a_batch_is_its_sentences_one_at_a_time(dtype: Any, tolerance: float, variant: str) -> None:
    model, rng = shaken(replace(BASE, **VARIANTS[variant]), dtype), Rng(11)
    rows, _ = model.decode_rows(BATCH, rng)
    loss, backward = model.loss(BATCH, rng)
    backward(1.0)
    whole = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()
    start, nats = 0, 0.0
    for i in range(len(BATCH)):
        one = Batch(BATCH.source.select([i]), BATCH.target.select([i]))
        alone, _ = model.decode_rows(one, rng)
        size = np.abs(rows).max()
        assert np.abs(alone - rows[start : start + len(alone)]).max() <= tolerance * size
        start += len(alone)
        part, part_backward = model.loss(one, rng)
        part_backward(1.0)
        nats += part.nats
    assert nats == pytest.approx(loss.nats, rel=tolerance)
    scale = max(np.abs(g).max() for g in whole.values())
    for name, parameter in model.named_parameters():
        assert np.abs(parameter.grad - whole[name]).max() <= tolerance * scale, name


@pytest.mark.parametrize("variant", ["the paper", "learned scales"])
def test_packed_rows_and_torchs_padded_road_are_equal(variant: str) -> None:
    model, rng = shaken(replace(BASE, **VARIANTS[variant])), Rng(2)
    source, target = BATCH.source, BATCH.target.without_last()
    x = np.random.default_rng(0).standard_normal((len(source.tokens), 12))
    padding = np.arange(7) >= source.lengths[:, None]
    padded = np.zeros((3, 7, 12))
    padded[~padding] = x
    packed, packed_backward = model.encoder.run(
        x, nn.Context(cu_seqlens=source.cu_seqlens, rng=rng.at(source.rows))
    )
    out, out_backward = model.encoder.forward(padded, src_key_padding_mask=padding, rng=rng)
    np.testing.assert_allclose(out[~padding], packed, rtol=0, atol=1e-13)
    dout = np.zeros_like(out)
    dout[~padding] = np.random.default_rng(1).standard_normal(packed.shape)
    dx = out_backward(dout)
    np.testing.assert_allclose(dx[~padding], packed_backward(dout[~padding])[0], rtol=0, atol=1e-12)
    assert len(target.tokens) == 11


@pytest.mark.parametrize(
    "variant", ["the paper", "article 003", "pre-norm", "learned scales", "article 004", "all tied"]
)
def test_one_token_at_a_time_equals_all_at_once(variant: str) -> None:
    model = shaken(replace(BASE, **VARIANTS[variant])).eval()
    said = [[1, 4, 4, 12], [1, 5, 6, 7], [1, 3, 9, 9]]
    batch = Batch(BATCH.source, Packed.of([[*s, 2] for s in said]))
    rows, _ = model.decode_rows(batch)
    log_p = ops.log_softmax(model.output(rows))[0].reshape(3, 4, -1)
    state = model.start(BATCH.source)
    for t in range(4):
        step, state = model.step(state, np.array([s[t] for s in said]))
        np.testing.assert_allclose(step, log_p[:, t], rtol=0, atol=1e-12)
        if t == 1:  # hypotheses change places, as in a beam
            order = np.array([2, 0, 1])
            state, log_p, said = state.select(order), log_p[order], [said[i] for i in order]


def test_a_tied_table_is_one_parameter_under_each_of_its_names() -> None:
    model = Seq2Seq(replace(BASE, tie_embeddings="all", source_vocab_size=13))
    names = [name for name, _ in model.named_parameters()]
    assert "source.tokens.weight" in names
    assert "target.tokens.weight" not in names
    assert "output.weight" not in names
    state = model.state_dict()
    assert state["output.weight"] is state["source.tokens.weight"]


@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_a_padding_row_of_zeros_learns_nothing(tie: Any) -> None:
    config = replace(BASE, padding_row_zero=True, tie_embeddings=tie, source_vocab_size=13)
    model = Seq2Seq(config)
    _, backward = model.loss(BATCH, Rng(3), label_smoothing=0.1)
    backward(1.0)
    for table in (model.source.tokens.weight, model.target.tokens.weight):
        assert table.grad is not None
        for row in (table.data[config.pad_token_id], table.grad[config.pad_token_id]):
            np.testing.assert_array_equal(row, 0.0)
        assert np.abs(table.grad).max() > 0.0
    assert model.output.weight.grad is not None
    assert model.output.weight.grad[config.pad_token_id].any() == (tie == "none")


def test_parameters_do_not_depend_on_what_else_is_built() -> None:
    small, large = Seq2Seq(BASE, seed=1), Seq2Seq(replace(BASE, encoder_layers=3), seed=1)
    for name, value in small.state_dict().items():
        np.testing.assert_array_equal(value, large.state_dict()[name])
    layers = large.encoder.layers
    assert np.abs(layers[0].linear1.weight.data - layers[1].linear1.weight.data).max() > 0.01


def test_a_recorder_sees_every_attention_and_its_gradient() -> None:
    model, recorder = shaken(BASE).eval(), Recorder()
    with recorder:
        _, backward = model.loss(BATCH)
    backward(1.0)
    assert sorted(recorder.maps) == [
        "decoder.layers.0.multihead_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.1.multihead_attn",
        "decoder.layers.1.self_attn",
        "encoder.layers.0.self_attn",
        "encoder.layers.1.self_attn",
    ]
    cross = recorder.maps["decoder.layers.1.multihead_attn"]
    assert cross.weights.shape == (3, 3, 6, 7)
    np.testing.assert_allclose(cross.weights[1, :, :6].sum(-1), 1.0, atol=1e-12)
    assert cross.dscores is not None
    assert np.abs(cross.dscores).max() > 0


def test_too_long_a_sequence_is_named() -> None:
    model = Seq2Seq(replace(BASE, max_position_embeddings=5)).eval()
    with pytest.raises(ValueError, match="longer than the model's 5 positions"):
        model.loss(BATCH)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_attention_heads": 5},
        {"dropout": 1.0},
        {"ffn_after": 0},
        {"tie_embeddings": "all"},
        {"layer_norm_eps": 0.0},
        {"layer_norm_eps": 1e-40},
        {"d_model": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{next(iter(wrong))} "):
        replace(BASE, **wrong)
