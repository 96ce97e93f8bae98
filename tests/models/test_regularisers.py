"""What only training knows: z-loss, word dropout, LayerDrop; in each family."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.models.test_r_drop import FAMILIES
from tests.models.whole_model import check_every_gradient

from pellucid import Rng, nn
from pellucid.models import CausalLM, CausalLMConfig

LEFT_OUT = {
    "seq2seq": (0.4, "decoder.layers.0."),
    "causal_lm": (0.6, "decoder.layers.0."),
    "masked_lm": (0.6, "encoder.layers.0."),
}
"""A probability, and the layer that it leaves out by the draws of Rng(3), as the check has them."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_gradient(family: str) -> None:
    module: Any = FAMILIES[family]
    p, layer = LEFT_OUT[family]
    model = module.shaken(replace(module.BASE, dropout=0.2, word_dropout=0.3, layer_drop=p))
    check_every_gradient(model, module.BATCH, entries=1, without=(layer,), z_loss=0.3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["word_dropout", "layer_drop"])
def test_it_is_off_where_nothing_is_trained(family: str, name: str) -> None:
    module: Any = FAMILIES[family]
    without, model = (module.shaken(replace(module.BASE, **{name: p})) for p in (0.0, 0.5))
    losses = [m.loss(module.BATCH, Rng(2))[0] for m in (without.eval(), model.eval())]
    assert losses[0] == losses[1]
    with pytest.raises(ValueError, match="rng"):
        model.train().loss(module.BATCH)


def test_layers_are_drawn_by_the_step_and_not_by_the_rows() -> None:
    """Of six layers each is left out in about p of the steps, whatever the batch."""
    config = CausalLMConfig(
        vocab_size=11, d_model=8, num_attention_heads=2, ffn_dim=5, num_hidden_layers=6,
        dropout=0.0, layer_drop=0.25,
    )  # fmt: skip
    decoder = CausalLM(config).train().decoder
    left_out: Counter[int] = Counter()
    for step in range(200):
        contexts = [
            nn.Context(
                cu_seqlens=np.array([0, n]), rng=Rng(0).fold(step).at(np.arange(n, dtype=np.uint32))
            )
            for n in (1, 3)
        ]
        drawn = [[decoder._left_out(i, context) for i in range(6)] for context in contexts]
        assert drawn[0] == drawn[1]
        left_out.update(i for i in range(6) if drawn[0][i])
    assert all(30 <= left_out[i] <= 70 for i in range(6)), left_out


def test_a_dropped_word_keeps_its_position_and_the_others_grow() -> None:
    config = CausalLMConfig(
        vocab_size=11, d_model=8, num_attention_heads=2, dropout=0.0, word_dropout=0.5
    )
    embed = CausalLM(config, dtype=np.float64).train().embed
    tokens, positions = np.full(100, 7), np.arange(100)
    rows = embed.forward(tokens, positions, rng=Rng(1))[0]
    token = embed.tokens.weight.data[7] * config.token_factor
    shares = (rows - embed.places[:100] * config.position_factor) / token
    dropped = np.isclose(shares, 0.0, atol=1e-9).all(1)
    assert 35 <= dropped.sum() <= 65
    np.testing.assert_allclose(shares[~dropped], 2.0)
