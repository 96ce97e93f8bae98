"""ALiBi's slopes as its paper and code have them, and what they do to attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pellucid import nn, ops
from pellucid.nn.attention import Attention
from pellucid.nn.config import AttentionConfig
from pellucid.ops import rules

PAPER = {
    8: [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256],
    6: [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8],  # 4 heads', then every second of 8 heads'
}


@pytest.mark.parametrize("heads", PAPER)
def test_slopes_are_the_papers(heads: int) -> None:
    found = ops.alibi(np.array([[3, 0, -2]]), heads)
    assert found.shape == (heads, 1, 3)
    np.testing.assert_allclose(found[:, 0, 0], -3 * np.array(PAPER[heads]))
    np.testing.assert_allclose(found[:, 0, 1:], -np.array(PAPER[heads])[:, None] * [0, 2])


def test_a_layer_attends_with_them() -> None:
    heads, width, length = 2, 6, 5
    config = AttentionConfig(embed_dim=width, num_heads=heads)
    variants = (replace(config, rule=rules.alibi), config)
    layer, plain = (Attention(c, dtype=np.float64, seed=3) for c in variants)
    x, place = np.random.default_rng(1).standard_normal((length, width)), np.arange(length)
    added = -np.abs(place[:, None] - place) * np.array([1 / 16, 1 / 256])[:, None, None]
    cu = np.array([0, length])
    ours = layer.run(x, nn.Context(cu_seqlens=cu, causal=True))[0]
    expected = plain.run(x, nn.Context(cu_seqlens=cu, causal=True, rule=rules.mask(added[None])))[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-12)
