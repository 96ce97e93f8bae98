"""Packed rows and padded arrays are two views of one batch."""

from __future__ import annotations

import numpy as np
import pytest
from tests.nn import compare

from pellucid import Rng, nn
from pellucid.core.rng import row_keys

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
