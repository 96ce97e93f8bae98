from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pellucid.check import gradient_check
from pellucid.core.rng import Rng
from pellucid.ops import attention, attention_backward, causal_mask, rules
from pellucid.ops.attention import score_gradient
from pellucid.ops.rules.function import Function, Table, maximum, minimum, where

N, H, L, S, D, DV = 2, 3, 5, 7, 11, 13
INF = np.inf


def qkv(length: int = L, source_length: int = S) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    g = np.random.default_rng([length, source_length])
    return (
        g.standard_normal((N, H, length, D)),
        g.standard_normal((N, H, source_length, D)),
        g.standard_normal((N, H, source_length, DV)),
    )


def naive(q: np.ndarray, k: np.ndarray, v: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """One query at a time, over the keys that it may see and no others."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at in np.ndindex(q.shape[:-1]):
        seen = ~hidden[at]
        if seen.any():
            a = k[at[:-1]][seen] @ q[at] / np.sqrt(D)
            e = np.exp(a - a.max())
            out[at] = (e / e.sum()) @ v[at[:-1]][seen]
    return out


def random_mask(shape: tuple[int, ...]) -> np.ndarray:
    mask = np.random.default_rng(shape).random(shape) < 0.4
    mask[..., -1, :] = True
    return mask


SHAPES = [(L, S), (H, 1, S), (N, 1, L, S), (N, 1, 1, S), (1, H, L, S), (N, H, L, S), (S,)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("causal", [False, True])
def test_any_mask_equals_looking_only_at_what_it_allows(
    shape: tuple[int, ...], kind: str, causal: bool
) -> None:
    q, k, v = qkv()
    hidden = random_mask(shape) if len(shape) > 1 else np.arange(S) % 3 == 1
    mask: Any = hidden if kind == "bool" else np.where(hidden, -INF, 0.0)
    both = np.broadcast_to(hidden, (N, H, L, S)) | (causal & causal_mask(L, S))
    out, saved = attention(q, k, v, mask=mask, causal=causal)
    np.testing.assert_allclose(out, naive(q, k, v, both), rtol=1e-12, atol=1e-14)
    assert not saved.weights[both].any()

    dead = both.all(-1)
    dq, dk, dv = attention_backward(np.ones_like(out), saved)
    assert not out[dead].any()
    assert not dq[dead].any()
    assert all(np.isfinite(d).all() for d in (dq, dk, dv))
    unseen = both.all(-2)
    assert not dk[unseen].any()
    assert not dv[unseen].any()


@pytest.mark.parametrize("mask", [np.full((L, S), True), np.full((L, S), -INF)])
def test_nothing_to_attend_to_gives_zero_and_zero_gradient(mask: np.ndarray) -> None:
    out, saved = attention(*qkv(), mask=mask)
    assert not out.any()
    assert not any(d.any() for d in attention_backward(np.ones_like(out), saved))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [-1e4, -1e9, -1e30])
def test_large_finite_negatives_are_not_dead(dtype: Any, value: float) -> None:
    q, k, v = (x.astype(dtype) for x in qkv())
    out, saved = attention(q, k, v, mask=np.full((L, S), value, dtype))
    np.testing.assert_allclose(saved.weights.sum(-1), 1.0, rtol=1e-5)
    assert out.dtype == dtype
    mixed = np.zeros((L, S), dtype)
    mixed[:, 2:] = value
    np.testing.assert_allclose(
        attention(q, k, v, mask=mixed)[0],
        attention(q, k[..., :2, :], v[..., :2, :])[0],
        rtol=1e-5, atol=1e-6,
    )  # fmt: skip


def test_a_mask_of_another_float_type_does_not_change_the_dtype() -> None:
    q, k, v = (x.astype(np.float32) for x in qkv())
    out, saved = attention(q, k, v, mask=np.zeros((L, S)))
    assert {x.dtype for x in (out, *attention_backward(out, saved))} == {np.dtype(np.float32)}


@pytest.mark.parametrize("lengths", [(5, 7), (7, 5), (1, 5), (5, 1), (1, 1)])
def test_causal_counts_both_from_the_first(lengths: tuple[int, int]) -> None:
    q, k, v = qkv(*lengths)
    hidden = np.triu(np.ones(lengths, bool), 1)
    assert np.array_equal(causal_mask(*lengths), hidden)
    expected = naive(q, k, v, np.broadcast_to(hidden, (N, H, *lengths)))
    np.testing.assert_allclose(attention(q, k, v, causal=True)[0], expected, rtol=1e-12, atol=1e-14)


def test_the_future_cannot_reach_an_earlier_output() -> None:
    """Nor the gradient of an earlier output the future (numpy-is-all-you-need leaks here)."""
    q, k, v = qkv(L, L)
    before, saved = attention(q, k, v, causal=True)
    k2, v2 = k.copy(), v.copy()
    k2[..., 3:, :], v2[..., 3:, :] = 99.0, -99.0
    after, _ = attention(q, k2, v2, causal=True)
    assert np.array_equal(before[..., :3, :], after[..., :3, :])
    assert not np.allclose(before[..., 3:, :], after[..., 3:, :])
    dout = np.zeros_like(before)
    dout[..., 2, :] = 1.0
    _, dk, dv = attention_backward(dout, saved)
    assert not dk[..., 3:, :].any()
    assert not dv[..., 3:, :].any()


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_any_number_of_axes_in_front(rank: int) -> None:
    q, k, v = (x[0, 0] if rank == 2 else x[0] if rank == 3 else x[None] for x in qkv())
    whole, _ = attention(*qkv())
    expected = whole[0, 0] if rank == 2 else whole[0] if rank == 3 else whole[None]
    np.testing.assert_allclose(attention(q, k, v)[0], expected, rtol=1e-13)


@pytest.mark.parametrize("lengths", [(0, 7), (5, 0), (0, 0)])
def test_no_query_and_no_key(lengths: tuple[int, int]) -> None:
    q, k, v = qkv(*lengths)
    for causal in (False, True):
        out, saved = attention(q, k, v, causal=causal)
        assert out.shape == (N, H, lengths[0], DV)
        assert not out.any()
        grads = attention_backward(np.ones_like(out), saved)
        assert [d.shape for d in grads] == [x.shape for x in (q, k, v)]
        assert not any(d.any() for d in grads)


def test_the_scale_is_one_over_the_root_of_the_width() -> None:
    q, k, v = qkv()
    np.testing.assert_array_equal(attention(q, k, v)[0], attention(q, k, v, scale=D**-0.5)[0])
    flat, _ = attention(q, k, v, scale=0.0)
    np.testing.assert_allclose(flat, np.broadcast_to(v.mean(-2, keepdims=True), flat.shape))


def test_no_number_is_too_large_for_the_softmax() -> None:
    q, k, v = qkv()
    out, saved = attention(1e80 * q, 1e80 * k, v)
    np.testing.assert_array_equal(saved.weights, saved.weights.round())  # every row one-hot
    assert np.isfinite(out).all()


def test_values_of_forbidden_keys_do_not_matter_unless_they_are_not_numbers() -> None:
    q, k, v = qkv()
    hidden = np.arange(S) >= 4
    k2, v2 = k.copy(), v.copy()
    k2[..., 4:, :], v2[..., 4:, :] = 1e30, 1e30
    assert np.array_equal(attention(q, k, v, mask=hidden)[0], attention(q, k2, v2, mask=hidden)[0])


def test_dropout_falls_on_the_weights_and_differs_by_head() -> None:
    q, k, v = qkv()
    rows = Rng(3).at(np.arange(N * L, dtype=np.uint32).reshape(N, 1, L))
    _, saved = attention(q, k, v, dropout=0.5, rng=rows)
    kept = saved.weights != 0
    np.testing.assert_allclose(saved.weights[kept], 2 * saved.probabilities[kept])
    assert 0.35 < kept.mean() < 0.65
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not np.array_equal(kept[:, a], kept[:, b])
    _, plain = attention(q, k, v, dropout=0.0, rng=rows)
    assert np.array_equal(plain.weights, plain.probabilities)


def test_a_gradient_that_comes_by_way_of_the_weights() -> None:
    q, k, v = qkv()
    options: dict[str, Any] = {"dropout": 0.3, "rng": Rng(7), "causal": True}

    def forward(*inputs: np.ndarray) -> Any:
        out, saved = attention(*inputs, **options)
        return (out, saved.weights), lambda dout, dw: attention_backward(dout, saved, dw)

    assert max(gradient_check(forward, [q, k, v]).values()) <= 1e-7


def test_the_gradient_of_the_scores() -> None:
    """dscores is what q and k receive theirs from; dweights is dout Vᵀ."""
    q, k, v = qkv()
    out, saved = attention(q, k, v, scale=0.5, dropout=0.3, rng=Rng(7))
    dout = np.random.default_rng(4).standard_normal(out.shape)
    dweights, dscores = score_gradient(dout, saved)
    dq, dk, _ = attention_backward(dout, saved)
    np.testing.assert_allclose(dweights, dout @ v.swapaxes(-1, -2))
    np.testing.assert_allclose(0.5 * dscores @ k, dq)
    np.testing.assert_allclose(0.5 * dscores.swapaxes(-1, -2) @ q, dk)
    assert np.array_equal(score_gradient(dout, saved, dweights)[0], 2 * dweights)


def test_shapes_that_do_not_fit_are_named() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"k \(…, S, D\).*got q \(2, 3, 5, 11\)"):
        attention(q, k[..., :3], v)
    with pytest.raises(ValueError, match="attention expects"):
        attention(q, k, v[..., :3, :])
    with pytest.raises(ValueError, match="axes in front equal"):
        attention(q, k[:1], v[:1])
    with pytest.raises(ValueError, match=r"attention expects.*got q \(5, 11\), k \(11,\)"):
        attention(q[0, 0], k[0, 0, 0], v[0, 0])
    with pytest.raises(ValueError, match=r"mask \(5, 8\) does not broadcast to the scores \(2, 3"):
        attention(q, k, v, mask=np.zeros((L, S + 1), bool))
    with pytest.raises(ValueError, match=r"mask \(2, 1, 1, 5, 7\) does not broadcast"):
        attention(q, k, v, mask=np.zeros((2, 1, 1, L, S)))


@pytest.mark.parametrize("lengths", [[1], [1, 2, 3]])
def test_an_offset_is_one_number_for_each_sequence(lengths: list[int]) -> None:
    q = k = v = np.ones((2, 3, 5, 7))
    with pytest.raises(ValueError, match="offset must have length 2, got"):
        attention(q, k, v, causal=True, offset=np.array(lengths))


def test_what_is_no_rule_or_mask_is_refused() -> None:
    x = np.zeros((1, 3, 2))
    fall = Function(lambda a, at: a - at.distance, lambda da, a, at: da)
    with pytest.raises(TypeError, match="got the function <lambda>; a function is called first"):
        attention(x, x, x, rule=fall)
    with pytest.raises(TypeError, match=r"mask must be bool.*got int8"):
        attention(x, x, x, mask=np.zeros((3, 3), np.int8))


def test_places_of_a_rule_are_whole() -> None:
    """A window of 2.5 would begin between two keys."""
    with pytest.raises(TypeError, match=r"must be a whole number, got 2\.5"):
        rules.window(2.5)
    with pytest.raises(ValueError, match="must be positive, got 0"):
        rules.window(0)
    with pytest.raises(TypeError, match="must be integers, got float64"):
        rules.prefix(np.array([2.5]))


@pytest.mark.parametrize("score", [3.0, -5.0, -10.0, -15.0, -20.0, -40.0])
def test_the_gradient_of_a_sink_of_small_probability(score: float) -> None:
    """−Σ dA cancels: in float32 it had the wrong sign from −10 on, and was noise beyond."""
    random = np.random.default_rng(17)
    arrays = [random.standard_normal((2, 3, 11, 5)) for _ in range(3)]
    dout = random.standard_normal((2, 3, 11, 5))
    found = {}
    for dtype in (np.float32, np.float64):
        rule = rules.sinks(np.full(3, score, dtype))
        _, saved = attention(*(x.astype(dtype) for x in arrays), rule=rule)
        found[dtype] = attention_backward(dout.astype(dtype), saved)[3]
    # softmax of S + 1 scores, its gradient in full
    q, k, v = arrays
    a = np.concatenate([q @ k.swapaxes(-1, -2) / np.sqrt(5), np.full((2, 3, 11, 1), score)], -1)
    p = np.exp(a - a.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = dout @ v.swapaxes(-1, -2)
    expected = -(p[..., -1] * (p[..., :-1] * dp).sum(-1)).sum((0, 2))
    np.testing.assert_allclose(found[np.float64], expected, rtol=1e-12)
    np.testing.assert_allclose(
        found[np.float32], expected, rtol=1e-5, atol=1e-5 * abs(expected).max()
    )


@pytest.mark.oracle("jax")
def test_a_function_of_scores_runs_under_jit() -> None:
    """`where` and its kin ask no array for its device: under jit it has none."""
    import jax

    def bent(a: Any, at: Any, bias: Any) -> Any:
        return where(a > 0, a, where(at.key < 2, -1.0, 0.5)) + minimum(maximum(a, -1), 2) + bias

    def bent_backward(da: Any, a: Any, at: Any, bias: Any) -> Any:
        inner = where((a > -1) & (a < 2), 1.0, 0.0)
        return da * (where(a > 0, 1.0, 0.0) + inner), da

    table = Table(7, lambda at: where(at.distance > 1, minimum(at.distance, 6), 0))
    function = Function(bent, bent_backward, {"bias": table})
    random = np.random.default_rng(19)
    q, k, v, dout = (random.standard_normal((2, 3, 11, 5)) for _ in range(4))
    b = random.standard_normal((3, 7))

    def run(q: Any, k: Any, v: Any, b: Any, dout: Any) -> Any:
        y, saved = attention(q, k, v, rule=function(b) & rules.causal)
        return y, *attention_backward(dout, saved)

    jax.config.update("jax_enable_x64", True)
    for ours, theirs in zip(run(q, k, v, b, dout), jax.jit(run)(q, k, v, b, dout), strict=True):
        np.testing.assert_allclose(np.asarray(theirs), ours, rtol=1e-12, atol=1e-14)
