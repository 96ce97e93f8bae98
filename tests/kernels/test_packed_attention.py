from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, planned, results

from pellucid import Rng, ops
from pellucid.core.rng import row_keys
from pellucid.kernels.backend import threads
from pellucid.ops import rules

LENGTHS = [5, 1, 0, 13, 50]
OTHER = [7, 3, 2, 0, 1]


def bounds(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def looks(causal: bool) -> rules.Rule:
    return rules.causal if causal else rules.Rule()


def named(lengths: list[int]) -> Rng:
    positions = np.concatenate([np.arange(n) for n in lengths])
    return Rng(3).fold(2).at(row_keys(np.repeat(np.arange(len(lengths)), lengths), positions))


def draw(
    lengths: list[int], others: list[int] | None, heads: int = 3, width: int = 7, spread: float = 1
) -> tuple[tuple[Any, ...], np.ndarray]:
    """q, k, v as nn.attention makes them: slices of one product, or of two."""
    random = np.random.default_rng(5)
    cu_q, e = bounds(lengths), heads * width
    if others is None:
        cu_k = cu_q
        whole = spread * random.standard_normal((sum(lengths), 3 * e), np.float32)
        parts = [whole[:, i * e : (i + 1) * e] for i in range(3)]
    else:
        cu_k = bounds(others)
        pair = spread * random.standard_normal((sum(others), 2 * e), np.float32)
        parts = [random.standard_normal((sum(lengths), e), np.float32), pair[:, :e], pair[:, e:]]
    q, k, v = (x.reshape(len(x), heads, width) for x in parts)
    return (q, k, v, cu_q, cu_k), random.standard_normal(q.shape, np.float32)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("width", [7, 16, 32, 53])
@pytest.mark.parametrize("others", [None, OTHER])
def test_short_sequences(
    causal: bool, dropout: float, width: int, others: list[int] | None
) -> None:
    args, dout = draw(LENGTHS, others, width=width)
    compare(
        ops.packed_attention,
        args,
        {"rule": looks(causal), "dropout": dropout, "rng": named(LENGTHS) if dropout else None},
        dout,
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths, others", [([307, 131], [263, 401]), ([300], None), ([2], [300])])
def test_sequences_longer_than_a_block(
    causal: bool, lengths: list[int], others: list[int] | None
) -> None:
    args, dout = draw(lengths, others, heads=2, width=17)
    compare(
        ops.packed_attention,
        args,
        {"rule": looks(causal), "dropout": 0.1, "rng": named(lengths)},
        dout,
    )


@pytest.mark.parametrize("name", ["alibi", "window", "cap", "mask"])
def test_rules_where_sequences_begin_behind_other_keys(name: str) -> None:
    """As new rows of a cache do: query 0 is at position `offset` of its keys."""
    args, dout = draw([3, 1, 0, 7], [7, 3, 2, 9])
    hidden = np.random.default_rng(5).random((4, 1, 7, 9)) < 0.2
    rule = {
        "alibi": rules.alibi & rules.causal,
        "window": rules.causal & rules.window(3),
        "cap": rules.soft_cap(2.0) & rules.prefix(np.array([2, 0, 1, 5])),
        "mask": rules.mask(hidden) & rules.alibi,
    }[name]
    options = {"rule": rule, "offset": np.array([4, 2, 2, 2])}
    compare(ops.packed_attention, args, options, dout)


@pytest.mark.parametrize("lengths, others", [([1, 2], [2, 2]), ([2, 2], [1, 2])])
def test_weights_are_zero_in_the_padding(lengths: list[int], others: list[int]) -> None:
    (q, k, _, cu_q, cu_k), _ = draw(lengths, others)
    w, _ = ops.attention_weights(q, k, cu_q, cu_k)
    assert not w[0, :, lengths[0] :].any()
    assert not w[0, :, :, others[0] :].any()


def test_scale_is_used() -> None:
    args, dout = draw(LENGTHS, None)
    compare(ops.packed_attention, args, {"scale": 0.9}, dout)


@pytest.mark.parametrize("spread", [1e-38, 1e-20, 30.0])
def test_denormal_and_saturated_scores(spread: float) -> None:
    args, dout = draw(LENGTHS, OTHER, spread=spread)
    compare(ops.packed_attention, args, {}, dout)


def test_a_sequence_without_keys_gives_zeros() -> None:
    args, dout = draw([3, 5], [0, 2])
    out, dq, _, _ = compare(ops.packed_attention, args, {}, dout)
    assert not out[:3].any()
    assert not dq[:3].any()


def test_keys_that_nobody_may_see_get_zero_gradient() -> None:
    args, dout = draw([2], [300])
    _, _, dk, dv = compare(ops.packed_attention, args, {"rule": rules.causal}, dout)
    assert not dk[2:].any()
    assert not dv[2:].any()


@pytest.mark.parametrize("rule", [rules.causal, rules.alibi], ids=["causal", "alibi"])
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_nothing_at_all(lengths: list[int], rule: rules.Rule) -> None:
    args, dout = draw(lengths, None) if lengths else draw([0], None)
    out, dq, _, _ = compare(ops.packed_attention, args, {"rule": rule}, dout)
    assert out.shape == dq.shape == args[0].shape


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_a_number_stays_inside_its_sequence(value: float) -> None:
    (q, k, v, *cu), _ = draw([3, 5], [4, 2])
    v = v.copy()
    v[4, 0, 0] = value
    out, _ = planned(ops.packed_attention, q, k, v, *cu)()
    assert np.isfinite(out[:3]).all()
    assert not np.isfinite(out[3:, 0, 0]).any()


def test_nan_scores_give_nan_rows() -> None:
    (q, k, v, *cu), _ = draw([3, 5], [4, 2])
    q = q.copy()
    q[1, 2] = np.nan
    out, _ = planned(ops.packed_attention, q, k, v, *cu)()
    assert np.isnan(out[1, 2]).all()
    assert np.isfinite(np.delete(out.reshape(-1, 7), 1 * 3 + 2, axis=0)).all()


def test_dropout_draws_the_bits_of_the_page() -> None:
    """With v the unit matrix the output is the weights themselves."""
    n, heads = 13, 2
    zeros = np.zeros((n, heads, n), np.float32)
    v = np.repeat(np.eye(n, dtype=np.float32)[:, None], heads, axis=1)
    cu = bounds([n])
    args = (zeros, zeros, v, cu, cu)
    options = {"dropout": 0.4, "rng": named([n])}
    weights, _ = planned(ops.packed_attention, *args, **options)()
    expected = ops.packed_attention(*args, **options)[0]
    np.testing.assert_array_equal(weights == 0, expected == 0)
    assert 0.3 < (weights == 0).mean() < 0.5


def test_gradients_are_slices_of_one_array() -> None:
    """So that the projection's backward needs no copy."""
    args, dout = draw(LENGTHS, None)
    _, dq, dk, dv = results(planned(ops.packed_attention, *args), dout)
    assert dq.base is dk.base is dv.base
    assert dq.base.shape == (sum(LENGTHS), 3, 3, 7)
    args, dout = draw(LENGTHS, OTHER)
    _, dq, dk, dv = results(planned(ops.packed_attention, *args), dout)
    assert dk.base is dv.base
    assert dk.base.shape == (sum(OTHER), 2, 3, 7)
    assert dq.base is None


def test_a_gradient_with_any_strides() -> None:
    args, dout = draw(LENGTHS, None)
    _, backward = planned(ops.packed_attention, *args)()
    spread_out = np.repeat(dout, 2, axis=2)[:, :, ::2]
    for y, z in zip(backward(dout), backward(spread_out), strict=True):
        np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize("change", ["float64", "last axis strided", "no row names"])
def test_arrays_that_packed_attention_declines(change: str) -> None:
    (q, k, v, *cu), _ = draw(LENGTHS, None)
    options: dict[str, Any] = {}
    if change == "float64":
        q = q.astype(np.float64)
    elif change == "last axis strided":
        q = np.repeat(q, 2, axis=2)[:, :, ::2]
    else:
        options = {"dropout": 0.1, "rng": Rng(1)}
    assert declined(ops.packed_attention, q, k, v, *cu, **options)


def test_one_query_broadcast_to_all_rows() -> None:
    (q, k, v, *cu), dout = draw(LENGTHS, None)
    compare(ops.packed_attention, (np.broadcast_to(q[:1], q.shape), k, v, *cu), {}, dout)


def test_the_output_of_long_rows_is_read_only() -> None:
    """Backward reads it again; that of short rows it does not."""
    (q, k, v, *cu), _ = draw([131], None)
    assert not planned(ops.packed_attention, q, k, v, *cu)()[0].flags.writeable
    (q, k, v, *cu), _ = draw([127], None)
    assert planned(ops.packed_attention, q, k, v, *cu)()[0].flags.writeable


@pytest.mark.parametrize("size", [1, 3])
def test_bits_do_not_depend_on_the_threads(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [50] * 23
    args, dout = draw(lengths, None, heads=5, width=32)
    options = {"dropout": 0.1, "rng": named(lengths)}
    run = planned(ops.packed_attention, *args, **options)
    usual = results(run, dout)
    monkeypatch.setenv("PELLUCID_THREADS", str(size))
    monkeypatch.setattr(threads, "_pool", None)
    for y, z in zip(usual, results(run, dout), strict=True):
        np.testing.assert_array_equal(y, z)
