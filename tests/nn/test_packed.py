"""Packed rows and padded arrays are two views of one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.nn import compare

from pellucid import Rng, nn
from pellucid.core.rng import row_keys
from pellucid.nn.attention import Attention
from pellucid.nn.config import AttentionConfig
from pellucid.ops import rules
from pellucid.ops.rules.function import Function, PerHead

L, S, E, H, P = 3, 5, 6, 2, 0.3


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_equals_padded_with_dropout(dtype: str, norm_first: bool, is_causal: bool) -> None:
    """The same bits fall whether a batch is padded or packed: outputs and gradients agree."""
    g = np.random.default_rng(0)
    source, target = np.array([S, 2, 4]), np.array([L, 1, 2])
    m = nn.Transformer(
        E, H, 2, 2, 11, P, batch_first=True, norm_first=norm_first, dtype=np.dtype(dtype)
    )
    src, tgt = (g.standard_normal((3, length, E)).astype(dtype) for length in (S, L))
    src_padding, tgt_padding = np.arange(S) >= source[:, None], np.arange(L) >= target[:, None]
    dy = np.where(tgt_padding[..., None], 0.0, g.standard_normal(tgt.shape)).astype(dtype)

    def rows_of(lengths: np.ndarray) -> Rng:
        place = [row_keys(np.full(n, i), np.arange(n)) for i, n in enumerate(lengths)]
        return Rng(7).at(np.concatenate(place))

    y, backward = m.forward(
        src, tgt,
        src_is_causal=is_causal, tgt_is_causal=True,
        src_key_padding_mask=src_padding, memory_key_padding_mask=src_padding,
        tgt_key_padding_mask=tgt_padding, rng=Rng(7),
    )  # fmt: skip
    dsrc, dtgt = backward(dy)
    grads = {name: p.grad for name, p in m.named_parameters()}
    m.zero_grad()

    cu_source, cu_target = (np.concatenate([[0], np.cumsum(n)]) for n in (source, target))
    memory, encoder_backward = m.encoder.run(
        src[~src_padding],
        nn.Context(cu_seqlens=cu_source, causal=is_causal, rng=rows_of(source).fold(0)),
    )
    packed, decoder_backward = m.decoder.run(
        tgt[~tgt_padding],
        nn.Context(
            cu_seqlens=cu_target,
            causal=True,
            memory=nn.Memory(memory, cu_source),
            rng=rows_of(target).fold(1),
        ),
    )
    dpacked, dmemory = decoder_backward(dy[~tgt_padding])
    dpacked_src, _ = encoder_backward(dmemory)
    found = {"y": packed, "dtgt": dpacked, "dsrc": dpacked_src}
    expected = {"y": y[~tgt_padding], "dtgt": dtgt[~tgt_padding], "dsrc": dsrc[~src_padding]}
    for name, parameter in m.named_parameters():
        assert parameter.grad is not None
        found[f"gradient of {name}"], expected[f"gradient of {name}"] = parameter.grad, grads[name]
    errors = compare.errors(found, expected, dtype)
    assert max(errors.values()) <= compare.TOLERANCE[dtype], errors


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_rule_of_the_context_may_have_learnt(dtype: Any) -> None:
    """Its numbers are constants to the layer, whose own, sinks here, get their gradients."""
    g = np.random.default_rng(2)
    table, sinks = g.standard_normal((8, H)).astype(dtype), g.standard_normal(H).astype(dtype)
    gain = Function(lambda a, at, c: a * c, lambda da, a, at, c: (da * c, da * a), {"c": PerHead()})
    x = g.standard_normal((2 * L, E)).astype(dtype)
    for more in (rules.relative(table), gain(sinks), rules.alibi):
        layer = Attention(AttentionConfig(embed_dim=E, num_heads=H, sinks=True), dtype=dtype)
        context = nn.Context(cu_seqlens=np.array([0, L, 2 * L]), rule=rules.causal & more)
        y, backward = layer.run(x, context)
        dx, _ = backward(np.ones_like(y))
        step = 1e-3 * np.sign(dx)
        plus, minus = (layer.run(x + s, context)[0].sum(dtype="f8") for s in (step, -step))
        np.testing.assert_allclose((plus - minus) / 2, (dx * step).sum(), rtol=1e-2)
        assert layer.sinks is not None
        assert layer.sinks.grad is not None
        assert layer.sinks.grad.any()


EXTRA: dict[str, Any] = {"add_bias_kv": True, "add_zero_attn": True}


def test_learnt_keys_with_a_cache_step_by_step() -> None:
    mha = nn.MultiheadAttention(E, H, **EXTRA).eval()
    x = np.random.default_rng(3).standard_normal((S, E)).astype(np.float32)
    whole, _ = mha.run(x, nn.Context(cu_seqlens=np.array([0, S]), causal=True))
    cache, steps = nn.Cache(), []
    for begin, end in ((0, 2), (2, 3), (3, S)):
        cu = np.array([0, end - begin])
        y, _ = mha.run(x[begin:end], nn.Context(cu_seqlens=cu, causal=True, cache=cache))
        steps.append(y)
    np.testing.assert_allclose(np.concatenate(steps), whole, atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float", "one column"])
def test_a_mask_of_the_padding_says_nothing_about_learnt_keys(kind: str) -> None:
    mha = nn.MultiheadAttention(E, H, **EXTRA).eval()
    x = np.random.default_rng(3).standard_normal((2 + S, E)).astype(np.float32)
    padding = (np.arange(S) >= np.array([[2], [S]]))[:, None, None]
    mask = {
        "bool": padding,
        "float": np.where(padding, -np.inf, 0.0),
        "one column": np.zeros((2, 1, S, 1), bool),
    }[kind]
    cu = np.array([0, 2, 2 + S])
    y, _ = mha.run(x, nn.Context(cu_seqlens=cu, rule=rules.mask(mask)))
    np.testing.assert_allclose(y, mha.run(x, nn.Context(cu_seqlens=cu))[0], atol=1e-6)


@pytest.mark.parametrize("rule", [rules.alibi, rules.soft_cap(2.0), rules.sinks(np.zeros(H))])
def test_learnt_keys_refuse_a_rule_that_changes_scores(rule: Any) -> None:
    mha, x = nn.MultiheadAttention(E, H, **EXTRA), np.ones((S, E), np.float32)
    with pytest.raises(ValueError, match="add_bias_kv or add_zero_attn takes masks"):
        mha.run(x, nn.Context(cu_seqlens=np.array([0, S]), rule=rules.causal & rule))
