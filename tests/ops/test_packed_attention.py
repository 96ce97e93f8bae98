from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid.core.batch import pack_rows, pad_rows
from pellucid.core.rng import Rng, row_keys
from pellucid.ops import (
    attention,
    attention_backward,
    packed_attention,
    packed_attention_backward,
    rules,
)
from pellucid.ops.rules.function import Function, PerHead

H, D, DV = 3, 11, 13
CU_Q, CU_K = np.array([0, 3, 4, 4, 9]), np.array([0, 2, 2, 5, 12])  # empty queries, empty keys


def rows(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    t, u = CU_Q[-1], CU_K[-1]
    shapes = ((t, H, D), (u, H, D), (u, H, DV))
    q, k, v = (g.standard_normal(shape) for shape in shapes)
    return q, k, v


def heads_first(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(0, 1)


@pytest.mark.parametrize("options", [{}, {"rule": rules.causal}, {"scale": 0.7}])
def test_every_sequence_is_as_if_it_were_alone(options: dict[str, Any]) -> None:
    q, k, v = rows()
    out, saved = packed_attention(q, k, v, CU_Q, CU_K, **options)
    dout = np.random.default_rng(2).standard_normal(out.shape)
    found = packed_attention_backward(dout, saved)
    for n in range(len(CU_Q) - 1):
        here, there = slice(*CU_Q[n : n + 2]), slice(*CU_K[n : n + 2])
        one = [heads_first(x) for x in (q[here], k[there], v[there])]
        alone, alone_saved = attention(*one, **options)
        np.testing.assert_allclose(out[here], heads_first(alone), rtol=1e-12, atol=1e-14)
        expected = attention_backward(heads_first(dout[here]), alone_saved)
        for d, e, at in zip(found, expected, (here, there, there), strict=True):
            np.testing.assert_allclose(d[at], heads_first(e), rtol=1e-11, atol=1e-13)


def test_a_sequence_without_keys_is_zero_with_zero_gradient() -> None:
    q, k, v = rows()
    out, saved = packed_attention(q, k, v, CU_Q, CU_K)
    assert not out[3:4].any()
    dq, *_ = packed_attention_backward(np.ones_like(out), saved)
    assert not dq[3:4].any()


def test_no_keys_at_all_and_no_sequence_at_all() -> None:
    q, k, v = rows()
    out, saved = packed_attention(q, k[:0], v[:0], CU_Q, np.zeros(5, int))
    assert out.shape == (9, H, DV)
    assert not out.any()
    assert not packed_attention_backward(np.ones_like(out), saved)[0].any()
    none = np.zeros(1, int)
    out, saved = packed_attention(q[:0], k[:0], v[:0], none, none)
    assert out.shape == (0, H, DV)
    assert [d.shape[0] for d in packed_attention_backward(out, saved)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        (rules.relative, (8, H)),
        (rules.sinks, (H,)),
        (
            Function(
                lambda a, at, x: a * x, lambda da, a, at, x: (da * x, da * a), {"x": PerHead()}
            ),
            (H,),
        ),
    ],
)
def test_what_a_rule_learns_without_any_key_is_nothing(rule: Any, shape: tuple[int, ...]) -> None:
    q, k, v = rows()
    for cu_q in (CU_Q, np.zeros(5, int), np.zeros(1, int)):
        own, cu_k = q[: cu_q[-1]], np.zeros(len(cu_q), int)
        given = rule(np.ones(shape))
        out, saved = packed_attention(own, k[:0], v[:0], cu_q, cu_k, rule=given)
        *_, learnt = packed_attention_backward(np.ones_like(out), saved)
        np.testing.assert_array_equal(learnt, np.zeros(shape))


def test_packed_drops_the_same_bits_as_padded() -> None:
    """So do any two ways to lay the same sequences out: the key is (example, position, head)."""
    x = np.random.default_rng(3).standard_normal((9, H, D))
    lengths = np.diff(CU_Q)
    example = np.repeat(np.arange(4), lengths)
    position = np.concatenate([np.arange(n) for n in lengths])
    rng, options = Rng(5).fold(2), {"dropout": 0.4, "rule": rules.causal}
    packed, _ = packed_attention(
        x, x, x, CU_Q, CU_Q, rng=rng.at(row_keys(example, position)), **options
    )
    padded = pad_rows(x, CU_Q).transpose(0, 2, 1, 3)
    keys = row_keys(np.arange(4)[:, None], np.arange(5))[:, None, :]
    hidden = (np.arange(5) >= lengths[:, None])[:, None, None, :]
    out, _ = attention(padded, padded, padded, mask=hidden, rng=rng.at(keys), **options)
    expected = pack_rows(out.transpose(0, 2, 1, 3), CU_Q)
    np.testing.assert_allclose(packed, expected, rtol=1e-13, atol=1e-15)

    alone = slice(4, 9)  # the last sequence in a batch of its own, under its own name
    named = rng.at(row_keys(np.full(5, 3), np.arange(5)))
    own = np.array([0, 5])
    single, _ = packed_attention(x[alone], x[alone], x[alone], own, own, rng=named, **options)
    np.testing.assert_allclose(single, packed[alone], rtol=1e-13, atol=1e-15)


def test_another_number_of_sequences_is_refused() -> None:
    q, k, v = rows()
    with pytest.raises(ValueError, match="queries hold 4 sequences, keys 3"):
        packed_attention(q, k, v, CU_Q, CU_K[[0, 1, 2, 4]])


def test_a_rule_that_is_shorter_than_the_batch_is_refused() -> None:
    q, k, v = rows()
    for rule in (rules.lengths(np.array([1])), rules.bounded(np.zeros(2, int), np.ones(2, int))):
        with pytest.raises(ValueError, match="is shorter than this batch"):
            packed_attention(q, k, v, CU_Q, CU_K, rule=rule)
