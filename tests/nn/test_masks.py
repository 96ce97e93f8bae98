"""Masks: hypothesis mixes them all and a loop over single queries says what must come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.compare import HAS_KERNELS, watching

import pellucid
from pellucid import nn
from pellucid.nn.masks import generate_square_subsequent_mask, summed, valid_lens_mask

Array = np.ndarray
CELLS = st.sampled_from(["open", "closed", "weighed", "far"])
ADDED = {"open": 0.0, "closed": -np.inf, "weighed": 0.7, "far": -1e4}


@st.composite
def masks(draw: Any, shape: tuple[int, ...]) -> Array | None:
    kind = draw(st.sampled_from(["none", "bool", "float64", "float32"]))
    if kind == "none":
        return None
    rows = draw(st.lists(CELLS, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    added = np.array([ADDED[cell] for cell in rows]).reshape(shape)
    return np.isneginf(added) if kind == "bool" else added.astype(kind)


@st.composite
def situations(draw: Any) -> dict[str, Any]:
    n, heads = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    length, source_length = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 5]))
    shape = (length, source_length)
    if draw(st.booleans()):
        shape = (n * heads, *shape)
    return {
        "n": n,
        "heads": heads,
        "length": length,
        "source_length": source_length,
        "attn_mask": draw(masks(shape)),
        "key_padding_mask": draw(masks((n, source_length))),
        "is_causal": draw(st.booleans()),
        "add_bias_kv": draw(st.booleans()),
        "add_zero_attn": draw(st.booleans()),
        "need_weights": draw(st.booleans()),
    }


def added_to_score(mask: Array | None, index: tuple[int, ...]) -> float:
    if mask is None:
        return 0.0
    value = mask[index]
    return (-np.inf if value else 0.0) if mask.dtype == bool else float(value)


def one_by_one(mha: nn.MultiheadAttention, query: Array, key: Array, s: dict[str, Any]) -> Array:
    """The heads' outputs (N, L, E) before the output projection, one query at a time."""
    (wq, bq), (wk, bk), (wv, bv) = mha.projections()
    heads, width = s["heads"], mha.head_dim
    z = np.zeros((s["n"], s["length"], heads * width))
    for n in range(s["n"]):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            for i in range(s["length"]):
                q = (wq @ query[n, i] + bq)[part]
                scores, values = [], []
                for j in range(s["source_length"]):
                    score = q @ (wk @ key[n, j] + bk)[part] / width**0.5
                    mask = s["attn_mask"]
                    front = (n * heads + h,) if mask is not None and mask.ndim == 3 else ()
                    score += added_to_score(mask, (*front, i, j))
                    score += added_to_score(s["key_padding_mask"], (n, j))
                    score += -np.inf if s["is_causal"] and j > i else 0.0
                    scores.append(score)
                    values.append((wv @ key[n, j] + bv)[part])
                if mha.bias_k is not None and mha.bias_v is not None:
                    scores.append(q @ mha.bias_k.data[0, 0, part] / width**0.5)
                    values.append(mha.bias_v.data[0, 0, part])
                if mha.add_zero_attn:
                    scores.append(0.0)
                    values.append(np.zeros(width))
                if max(scores) > -np.inf:
                    e = np.exp(np.array(scores) - max(scores))
                    z[n, i, part] = e / e.sum() @ np.array(values)
    return z


@settings(max_examples=300, deadline=None, derandomize=True)
@given(situations())
def test_any_mixture_equals_one_query_at_a_time(s: dict[str, Any]) -> None:
    width = 3
    mha = nn.MultiheadAttention(
        s["heads"] * width,
        s["heads"],
        add_bias_kv=s["add_bias_kv"],
        add_zero_attn=s["add_zero_attn"],
        batch_first=True,
        dtype=np.float64,
    )
    g = np.random.default_rng(0)
    mha.in_proj_bias.data = g.standard_normal(mha.in_proj_bias.shape)
    mha.out_proj.bias.data = g.standard_normal(mha.out_proj.bias.shape)
    query = g.standard_normal((s["n"], s["length"], mha.embed_dim))
    key = g.standard_normal((s["n"], s["source_length"], mha.embed_dim))
    call = {k: s[k] for k in ("attn_mask", "key_padding_mask", "is_causal", "need_weights")}
    (y, _), backward = mha.forward(query, key, key, **call)

    z = one_by_one(mha, query, key, s)
    expected = z @ mha.out_proj.weight.data.T + mha.out_proj.bias.data
    np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-9)

    gradients = backward(g.standard_normal(y.shape))
    for gradient in (*gradients, *(p.grad for p in mha.parameters())):
        assert np.isfinite(gradient).all()
    dead = ~z.any(axis=-1)  # in every head
    assert not gradients[0][dead].any()
    if not (s["add_bias_kv"] or s["add_zero_attn"]):
        unseen = never_seen(s)
        assert not gradients[1][unseen].any()
        assert not gradients[2][unseen].any()


def never_seen(s: dict[str, Any]) -> Array:
    """(N, S) True where no query of any head may look at the key."""
    seen = np.zeros((s["n"], s["source_length"]), bool)
    for n in range(s["n"]):
        for h in range(s["heads"]):
            for i in range(s["length"]):
                for j in range(s["source_length"]):
                    mask = s["attn_mask"]
                    front = (n * s["heads"] + h,) if mask is not None and mask.ndim == 3 else ()
                    score = added_to_score(mask, (*front, i, j))
                    score += added_to_score(s["key_padding_mask"], (n, j))
                    score += -np.inf if s["is_causal"] and j > i else 0.0
                    seen[n, j] |= score > -np.inf
    return ~seen


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_most_negative_numbers_forbid_nothing(dtype: str) -> None:
    """finfo.min in two masks, or in a wider mask, is a common way to write a mask."""
    mha = nn.MultiheadAttention(6, 2, batch_first=True, dtype=np.dtype(dtype))
    x = np.random.default_rng(0).standard_normal((2, 3, 6)).astype(dtype)
    padding = np.zeros((2, 3), dtype)
    padding[0] = np.finfo(dtype).min
    weights = mha(x, x, x, padding, attn_mask=np.full((3, 3), np.finfo(np.float64).min))[1]
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_masks_whose_sum_overflows_keep_its_sign(dtype: Any) -> None:
    most = np.finfo(dtype).max
    mask = np.array([most, -most, -np.inf, 3.0], dtype)
    np.testing.assert_array_equal(summed(mask, mask), np.array([most, -most, -np.inf, 6], dtype))


def test_the_most_negative_numbers_of_a_wider_mask_forbid_nothing_in_a_function() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 5)).astype(np.float32)
    mask = np.full((3, 3), np.finfo(np.float64).min)
    y = nn.functional.scaled_dot_product_attention(x, x, x, mask)
    np.testing.assert_allclose(y, np.broadcast_to(x.mean(axis=2, keepdims=True), y.shape), 1e-5)


def test_a_later_target_changes_no_earlier_output() -> None:
    """What leaks the future makes a loss that looks wonderful."""
    model = nn.Transformer(6, 2, 2, 2, 11, 0.0, batch_first=True, dtype=np.float64)
    g = np.random.default_rng(0)
    src, tgt = g.standard_normal((2, 5, 6)), g.standard_normal((2, 5, 6))  # L = S on purpose
    y = model(src, tgt, tgt_is_causal=True)
    tgt[:, 3] += 1.0
    moved = model(src, tgt, tgt_is_causal=True)
    np.testing.assert_array_equal(moved[:, :3], y[:, :3])
    assert (moved[:, 3:] != y[:, 3:]).any(axis=-1).all()


def test_padding_and_neighbours_change_nothing() -> None:
    model = nn.Transformer(6, 2, 1, 1, 11, 0.0, batch_first=True, dtype=np.float64)
    g = np.random.default_rng(0)
    src, tgt = g.standard_normal((3, 7, 6)), g.standard_normal((3, 5, 6))
    padding = valid_lens_mask(np.array([7, 4, 2]), 7)
    y = model(
        src, tgt, src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True
    )
    alone = model(src[1:2, :4], tgt[1:2], tgt_is_causal=True)
    np.testing.assert_allclose(y[1:2], alone, rtol=1e-12, atol=1e-14)


@pytest.mark.oracle("torch")
def test_square_subsequent_mask_is_torchs() -> None:
    import torch

    theirs = torch.nn.Transformer.generate_square_subsequent_mask(5).numpy()
    ours = generate_square_subsequent_mask(5)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(nn.Transformer.generate_square_subsequent_mask(5), ours)
    assert generate_square_subsequent_mask(3, dtype=np.float64).dtype == np.float64


def test_valid_lens_for_each_query_are_an_attention_mask() -> None:
    mha = nn.MultiheadAttention(6, 2, batch_first=True)
    g = np.random.default_rng(0)
    x = g.standard_normal((2, 3, 6)).astype(np.float32)
    memory = g.standard_normal((2, 5, 6)).astype(np.float32)
    lens = np.array([[1, 5, 0], [2, 2, 3]])
    weights = mha(x, memory, memory, attn_mask=valid_lens_mask(lens, 5, 2))[1]
    np.testing.assert_array_equal((weights > 0).sum(-1), lens)
    for wrong in (np.array([1.0]), np.array(3)):
        with pytest.raises(ValueError, match="valid_lens must be integers"):
            valid_lens_mask(wrong, 5)


@HAS_KERNELS
@pytest.mark.parametrize("how", ["bool", "float", "float with is_causal"])
@pytest.mark.parametrize("padded", [False, True])
def test_torchs_usual_masks_run_on_the_kernels(how: str, padded: bool) -> None:
    """The causal mask that PyTorch users pass, and key padding, cost no fallback."""
    model = nn.Transformer(24, 2, 2, 2, 40, batch_first=True).eval()
    src, tgt = (np.random.default_rng(i).standard_normal((3, 11, 24), np.float32) for i in range(2))
    mask = nn.generate_square_subsequent_mask(11)
    if how == "bool":
        mask = mask != 0
    padding = np.arange(11) >= np.array([[11], [7], [4]]) if padded else None
    options = {
        "src_key_padding_mask": padding,
        "tgt_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
    }
    with watching() as taken:
        ours = model(src, tgt, tgt_mask=mask, tgt_is_causal=how.endswith("causal"), **options)
    assert taken["packed_attention"]
    with pellucid.reference():
        by_flag = model(src, tgt, tgt_is_causal=True, **options)
    seen = slice(None) if padding is None else ~padding
    np.testing.assert_allclose(ours[seen], by_flag[seen], atol=2e-6)


def test_a_mask_that_is_nearly_causal_is_no_causal_mask() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 6), np.float32)
    layer = nn.TransformerEncoderLayer(6, 2, 11, batch_first=True).eval()
    mask = nn.generate_square_subsequent_mask(5)
    mask[3, 1] = -1.0
    changed = layer(x, mask)
    assert np.abs(changed - layer(x, is_causal=True))[:, 3].max() > 1e-4


def test_a_mask_may_be_written_to_after_forward() -> None:
    """The gradient is that of the mask which forward was given."""
    mha = nn.MultiheadAttention(8, 2, batch_first=True)
    x = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)
    mask = np.random.default_rng(0).random((4, 4, 4)) < 0.5

    def gradients(write: bool) -> Any:
        own = mask.copy()
        (y, _), backward = mha.forward(x, x, x, attn_mask=own)
        own ^= write
        return backward(y)

    for plain, after in zip(gradients(False), gradients(True), strict=True):
        np.testing.assert_array_equal(plain, after)
