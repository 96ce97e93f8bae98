"""The walk reaches all that a model consists of, and readers refuse what they do not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models import test_causal_lm, test_masked_lm, test_seq2seq

from pellucid import nn, ops
from pellucid.models import CausalLM, CausalLMConfig, MaskedLM, Seq2Seq
from pellucid.models.walk import (
    EVERY_ATTENTION,
    GENERATIVE,
    Reader,
    UnsupportedError,
    array,
    projections,
    score_factor,
    stacks_of,
)
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import Block, FeedForward
from pellucid.ops import rules

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
READER = Reader("The test", GENERATIVE, {"kind": ("layer_norm",), "activation": ("relu", "gelu")})


@pytest.mark.parametrize(("kind", "config"), EVERY)
def test_steps_are_those_that_the_stack_runs(kind: Any, config: Any) -> None:
    model = kind(config)
    stacks = stacks_of(model)
    assert list(stacks) == list(config.depths)
    for name, depth in config.depths.items():
        stack, layers = stacks[name], getattr(config, depth)
        memory = kind is Seq2Seq and name == "decoder"
        networks = config.ffn_before + config.ffn_after
        assert len(stack.networks()) == layers * networks
        assert len(stack.attentions()) == layers
        assert len(stack.attentions(memory=True)) == layers * memory
        assert [step.layer for step in stack.steps] == [
            i for i in range(layers) for _ in range(1 + memory + networks)
        ]
        assert all(step.norm_first == (config.norm == "pre") for step in stack.steps)
        assert stack.causal == (name == "decoder")
        assert (stack.norm is not None) == config.final_norm
        for attention in stack.attentions():
            assert score_factor(attention.config) == config.score_factor


@pytest.mark.parametrize("scale", ["sqrt_d_k", "learned"])
def test_attention_over_its_projections_needs_no_learned_scale(scale: Any) -> None:
    model = CausalLM(replace(SMALL, attention_scale=scale), dtype=np.float64).eval()
    generator = np.random.default_rng(1)
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.3 * generator.standard_normal(parameter.shape)
    own = stacks_of(model)["decoder"].attentions()[0]
    weights, biases = zip(*projections(own), strict=True)
    copy = nn.MultiheadAttention(
        own.config.embed_dim,
        own.config.num_heads,
        scale=score_factor(own.config),
        dtype=np.float64,
    )
    state = own.state_dict()
    state.pop("head_scale", None)
    stacked = {"in_proj_weight": np.concatenate(weights), "in_proj_bias": np.concatenate(biases)}
    copy.load_state_dict(state | stacked)
    x = generator.standard_normal((5, own.config.embed_dim))
    context = nn.Context(cu_seqlens=np.array([0, 5]))
    np.testing.assert_allclose(copy.run(x, context)[0], own.run(x, context)[0], rtol=1e-12)
    assert array(None) is None


@pytest.mark.parametrize("positions", ["alibi", "relative"])
@pytest.mark.parametrize("kind", [CausalLM, MaskedLM])
def test_distances_are_what_the_layer_adds(kind: Any, positions: str) -> None:
    module = test_causal_lm if kind is CausalLM else test_masked_lm
    model = kind(replace(module.BASE, positions=positions), dtype=np.float64).eval()
    (stack,) = stacks_of(model).values()
    attention = stack.attentions()[0]
    found = stack.distances(attention)
    assert found is not None
    table, reach = found
    assert table.shape == (attention.config.num_heads, 2 * reach + 1)
    distance = np.subtract.outer(np.arange(5), np.arange(5))
    added = table[:, reach + np.clip(distance, -reach, reach)]
    if positions == "alibi":
        expected = ops.alibi(distance, attention.config.num_heads)
        np.testing.assert_allclose(added, expected, rtol=1e-6)
    else:
        assert attention.relative_bias is not None
        buckets = ops.relative_buckets(distance, *attention.config.relative, not stack.causal)
        expected = attention.relative_bias.data[buckets].transpose(2, 0, 1)
        np.testing.assert_array_equal(added, expected)


def test_an_array_that_no_block_reads_is_refused_by_name() -> None:
    model = CausalLM(SMALL)
    model.decoder.layers[0].gate = nn.Linear(3, 2)
    with pytest.raises(UnsupportedError, match=r"reads decoder\.layers\.0\.gate\.weight"):
        stacks_of(model)


def test_a_block_of_a_layer_is_read_like_its_others() -> None:
    model = CausalLM(SMALL)
    layer = model.decoder.layers[0]
    layer.more = nn.Linear(12, 12)
    network = FeedForward(layer.more, "relu", layer.dropout, layer.more)
    blocks = [*layer.blocks(), Block("", network, layer.norm2, layer.dropout2)]
    layer.blocks = lambda: blocks
    assert len(READER.read(model)["decoder"].networks()) == SMALL.num_hidden_layers + 1


def test_what_computes_and_is_not_known_is_refused_by_name() -> None:
    class Mixing:
        """It is no module, so that only the block has it."""

    model = CausalLM(SMALL)
    layer = model.decoder.layers[0]
    blocks = [layer.blocks()[0]._replace(body=Mixing())]
    layer.blocks = lambda: blocks
    with pytest.raises(UnsupportedError, match="layer 0 computes Mixing"):
        stacks_of(model)


def test_a_reader_refuses_modules_and_settings_that_it_does_not_list() -> None:
    assert READER.read(CausalLM(SMALL)).keys() == {"decoder"}

    def refused(message: str, **settings: Any) -> None:
        with pytest.raises(UnsupportedError, match=f"The test does not support this .*{message}"):
            READER.read(CausalLM(replace(SMALL, **settings)))

    refused(r"Norm kind = 'rms_norm' \(supported: layer_norm", norm_type="rms_norm")
    refused(r"activation = 'silu' \(supported: relu, gelu\)", activation_function="silu")
    refused(r"Attention rule = Window\(size=7\) \(supported: none\)", sliding_window=7)
    refused(r"Attention rotate = rotary \(supported: None\)", positions="rotary")
    with pytest.raises(UnsupportedError, match=r"MaskedLM; .*MaskedHead \(head\)"):
        READER.read(MaskedLM(test_masked_lm.BASE))
    wide = replace(READER, settings={**READER.settings, **EVERY_ATTENTION})
    assert wide.read(CausalLM(replace(SMALL, sliding_window=7)))


def test_a_module_of_another_type_is_refused_by_name() -> None:
    class Narrow(Attention):
        """It attends in another way."""

    model = CausalLM(SMALL)
    layer = model.decoder.layers[1]
    layer.self_attn = Narrow(layer.self_attn.config)
    with pytest.raises(UnsupportedError, match=r"Narrow \(decoder\.layers\.1\.self_attn\)"):
        READER.read(model)
    with pytest.raises(UnsupportedError, match="Linear is not a model"):
        stacks_of(nn.Linear(3, 2))


def test_what_several_parts_add_by_distance_is_added_up() -> None:
    model = CausalLM(SMALL)
    stack = stacks_of(model)["decoder"]
    own = stack.attentions()[0].config
    square = rules.by_distance(lambda distance, heads: ops.alibi(distance, heads) ** 2)
    one, other, both = (
        stack.distances(Attention(replace(own, rule=rule)))
        for rule in (rules.alibi, square, rules.alibi & square)
    )
    assert one is not None
    assert other is not None
    assert both is not None
    np.testing.assert_allclose(both[0], one[0] + other[0], rtol=1e-6)
