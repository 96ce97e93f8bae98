"""A description names the arrays that its model has, and readers refuse what they do not know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.models import test_causal_lm, test_masked_lm, test_seq2seq

from pellucid import nn
from pellucid.models import CausalLM, CausalLMConfig, MaskedLM, Seq2Seq
from pellucid.models.describe import (
    GENERATIVE,
    Attention,
    FeedForward,
    Norm,
    Reader,
    Record,
    Residual,
    UnsupportedError,
    array,
    describe,
    position_table,
    projections,
    tensors,
)
from pellucid.models.sizes import forward_operations, parameter_count

EVERY: list[Any] = [
    pytest.param(kind, replace(module.BASE, **variant), id=f"{kind.__name__}: {name}")
    for kind, module in (
        (Seq2Seq, test_seq2seq),
        (CausalLM, test_causal_lm),
        (MaskedLM, test_masked_lm),
    )
    for name, variant in module.VARIANTS.items()
]
SMALL = CausalLMConfig(vocab_size=11, d_model=12, num_attention_heads=3, ffn_dim=17)
READER = Reader("The test", {**GENERATIVE, FeedForward: {"activation": ("relu", "gelu")}})


@pytest.mark.parametrize(("kind", "config"), EVERY)
def test_tensors_are_those_of_the_model(kind: Any, config: Any) -> None:
    model = kind(config)
    records = describe(config)
    assert describe(model) == records
    state = model.state_dict()
    assert {t.name: t.shape for t in tensors(records)} == {k: v.shape for k, v in state.items()}
    shared: dict[int, set[str]] = {}
    tied: dict[str, set[str]] = {}
    for tensor in tensors(records):
        shared.setdefault(id(state[tensor.name]), set()).add(tensor.name)
        tied.setdefault(tensor.same_as or tensor.name, set()).add(tensor.name)
    assert sorted(map(sorted, shared.values())) == sorted(map(sorted, tied.values()))
    assert parameter_count(records) == sum(p.data.size for p in model.parameters())


@pytest.mark.parametrize(("kind", "config"), EVERY)
def test_settings_are_those_of_the_modules(kind: Any, config: Any) -> None:
    model = kind(config)
    modules = dict(model.modules())
    for record in describe(model):
        if not isinstance(record, Residual):
            continue
        layer = modules[f"{record.stack}.layers.{record.layer}"]
        assert (record.placement == "pre") == layer.norm_first
        assert record.norm.eps == modules[record.norm.weight.name.removesuffix(".weight")].eps
        assert record.dropout == layer.dropout1.p
        if isinstance(record.sublayer, FeedForward):
            assert record.sublayer.activation == layer.activation
            assert record.sublayer.dropout == layer.dropout.p
        else:
            name = record.sublayer.out_proj.weight.name.removesuffix(".out_proj.weight")
            own = modules[name].config
            scale = 1.0 if own.scale == "learned" else own.scale
            assert (record.sublayer.heads, record.sublayer.scale) == (own.num_heads, scale)
            assert record.sublayer.head_width == own.head_width
            assert record.sublayer.dropout == own.dropout


@pytest.mark.parametrize("scale", ["sqrt_d_k", "learned"])
def test_attention_over_its_projections_needs_no_learned_scale(scale: Any) -> None:
    model = CausalLM(replace(SMALL, attention_scale=scale), dtype=np.float64).eval()
    generator = np.random.default_rng(1)
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.3 * generator.standard_normal(parameter.shape)
    (block, *_) = [record for record in describe(model) if isinstance(record, Residual)]
    assert isinstance(block.sublayer, Attention)
    weights, biases = zip(*projections(block.sublayer, model.state_dict()), strict=True)
    own = model.decoder.layers[0].self_attn
    copy = nn.MultiheadAttention(
        own.config.embed_dim, own.config.num_heads, scale=block.sublayer.scale, dtype=np.float64
    )
    state = own.state_dict()
    state.pop("head_scale", None)
    stacked = {"in_proj_weight": np.concatenate(weights), "in_proj_bias": np.concatenate(biases)}
    copy.load_state_dict(state | stacked)
    x = generator.standard_normal((5, own.config.embed_dim))
    context = nn.Context(cu_seqlens=np.array([0, 5]))
    np.testing.assert_allclose(copy.run(x, context)[0], own.run(x, context)[0], rtol=1e-12)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_position_table_is_the_models(kind: Any) -> None:
    model = CausalLM(replace(SMALL, positions=kind))
    stack = READER.stack(describe(replace(SMALL, positions=kind, num_hidden_layers=0)), "decoder")
    assert stack is not None
    found = position_table(stack.positions, model.state_dict(), np.float32)
    np.testing.assert_array_equal(found, model.embed.places)
    assert array(None, {}) is None


def test_a_model_with_an_array_of_its_own_is_refused_by_name() -> None:
    model = CausalLM(SMALL)
    model.decoder.layers[0].gate = nn.Linear(3, 2)
    with pytest.raises(UnsupportedError, match=r"decoder\.layers\.0\.gate\.weight"):
        describe(model)


def changed(records: tuple[Record, ...], **settings: Any) -> list[Record]:
    """Change settings of the first residual block's norm or sublayer."""
    first = next(i for i, record in enumerate(records) if isinstance(record, Residual))
    block: Any = records[first]
    if "kind" in settings:
        block = replace(block, norm=replace(block.norm, **settings))
    else:
        block = replace(block, sublayer=replace(block.sublayer, **settings))
    return [*records[:first], block, *records[first + 1 :]]


def test_a_reader_refuses_records_and_settings_that_it_does_not_list() -> None:
    records = describe(replace(SMALL, num_hidden_layers=2))
    stack = READER.stack(records, "decoder")
    assert stack is not None
    assert [len(blocks) for blocks in stack.layers()] == [2, 2]
    assert READER.stack(records, "encoder") is None
    with pytest.raises(UnsupportedError, match=r"The test .* Norm kind = 'rms_norm' \(supp"):
        READER.check(changed(records, kind="rms_norm"))
    with pytest.raises(UnsupportedError, match=r"FeedForward activation = 'silu' \(supported: rel"):
        READER.check(describe(replace(SMALL, activation_function="silu")))

    @dataclass(frozen=True, kw_only=True)
    class Gated(FeedForward):
        gates: int = 2

    with pytest.raises(UnsupportedError, match=r"Gated .*supported: Embedding, .*FeedForward"):
        READER.check([Gated(stack="decoder", linear1=None, linear2=None)])  # type: ignore[arg-type]

    @dataclass(frozen=True, kw_only=True)
    class Window(Attention):
        window: int | None = None

    wide = {**READER.supports, Window: {"head_scale": None}}
    attention: Any = next(r for r in records if isinstance(r, Residual)).sublayer
    plain = Window(**vars(attention))
    Reader("The test", wide).check([plain])
    with pytest.raises(UnsupportedError, match=r"Window window = 7 \(supported: None\)"):
        Reader("The test", wide).check([replace(plain, window=7)])


def test_a_reader_refuses_records_at_a_place_that_it_does_not_read() -> None:
    records, bare = describe(SMALL), describe(replace(SMALL, final_norm=False))
    norm = next(record for record in records if isinstance(record, Norm))
    with pytest.raises(UnsupportedError, match=r"does not support Norm .* at this place"):
        READER.stack([norm, *records], "decoder")
    with pytest.raises(UnsupportedError, match=r"Embedding .* at this place"):
        READER.stack([*records, records[0]], "decoder")
    with pytest.raises(UnsupportedError, match="needs token embeddings and positions"):
        READER.stack([record for record in bare if record is not bare[1]], "decoder")


def test_operations_are_those_of_the_products() -> None:
    base = replace(test_seq2seq.BASE, encoder_layers=2, decoder_layers=3)
    e, f, v = base.d_model, base.ffn_dim, base.target_vocab_size
    source, target = [3, 5], [7, 2]
    encoder = 2 * (8 * (4 * e * e + 2 * e * f) + (9 + 25) * 2 * e)
    decoder = 3 * (9 * (6 * e * e + 2 * e * f) + 8 * 2 * e * e + (49 + 4 + 21 + 10) * 2 * e)
    found = forward_operations(describe(base), {"encoder": source, "decoder": target})
    assert found == 2 * (encoder + decoder + 9 * e * v)
