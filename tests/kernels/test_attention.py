"""Attention on padded batches, which runs on the kernels of packed ones."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import compare, declined, page, planned

from pellucid import Rng, nn, ops
from pellucid.check import OpCase, op_cases
from pellucid.core.rng import row_keys
from pellucid.kernels import flash
from pellucid.ops import rules
from pellucid.ops.rule import Rule

N, H, L, S, D = 3, 2, 11, 7, 5


def draw(*lead: int, length: int = L, source: int = S, joined: bool = True) -> list[np.ndarray]:
    """q, k, v, dout; joined: as they are split from (…, L, E)."""
    random = np.random.default_rng(5)
    shapes = [(length, D), (source, D), (source, 13), (length, 13)]
    if not joined:
        return [random.standard_normal((*lead, H, *shape), np.float32) for shape in shapes]
    arrays = [random.standard_normal((*lead, rows, H, d), np.float32) for rows, d in shapes]
    return [x.swapaxes(-2, -3) for x in arrays]


def named(n: int = N, length: int = L) -> Rng:
    return Rng(3).fold(1).at(row_keys(np.arange(n)[:, None, None], np.arange(length)))


def padding(*sources: int, source: int = S) -> np.ndarray:
    return (np.arange(source) >= np.array(sources)[:, None])[:, None, None, :]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", [None, padding(7, 3, 0), padding(4)])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_padded_batches(
    joined: bool, causal: bool, mask: np.ndarray | None, dropout: float
) -> None:
    q, k, v, dout = draw(N, joined=joined)
    options = {"mask": mask, "causal": causal, "dropout": dropout, "rng": named()}
    compare(ops.attention, (q, k, v), options, dout)


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
def test_any_axes_in_front(lead: tuple[int, ...]) -> None:
    q, k, v, dout = draw(*lead)
    compare(ops.attention, (q, k, v), {"scale": 0.7}, dout)


@pytest.mark.parametrize("shape", [(L, S), (2, L, S), (N, 1, 1, S), (N, 2, L, 1)])
@pytest.mark.parametrize("added", [True, False])
def test_heads_that_lie_apart_are_not_copied(
    shape: tuple[int, ...], added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, v, dout = draw(N, joined=False)
    numbers = np.random.default_rng(5).standard_normal(shape, np.float32)
    seen, real = [], flash.attend

    def attend(*args: Any) -> Any:
        seen.append(args[0])
        return real(*args)

    monkeypatch.setattr(flash, "attend", attend)
    compare(ops.attention, (q, k, v), {"mask": numbers if added else numbers > 1}, dout)
    assert all(np.shares_memory(rows, q) for rows in seen)
    seen.clear()
    compare(ops.attention, (q, k, v), {"rule": rules.alibi}, dout)
    assert not any(np.shares_memory(rows, q) for rows in seen), "each head has its own slope"


def test_keys_shared_by_all_heads() -> None:
    q, k, v, dout = draw(N)
    k, v = (np.broadcast_to(x[:, :1], x.shape) for x in (k, v))
    compare(ops.attention, (q, k, v), {}, dout)


@pytest.mark.parametrize("axes", [(3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_any_order_of_axes_in_memory(axes: tuple[int, ...]) -> None:
    q, k, v, dout = (
        np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes)) for x in draw(N)
    )
    compare(ops.attention, (q, k, v), {}, dout)


def test_a_long_sequence() -> None:
    q, k, v, dout = draw(1, length=301, source=397, joined=False)
    compare(ops.attention, (q, k, v), {"causal": True}, dout)


def test_dropout_draws_the_bits_of_the_page() -> None:
    q = np.zeros((N, H, L, S), np.float32)
    v = np.broadcast_to(np.eye(S, dtype=np.float32), (N, H, S, S)).copy()
    options: dict[str, Any] = {"dropout": 0.4, "rng": named()}
    weights, _ = planned(ops.attention, q, v, v, **options)()
    np.testing.assert_array_equal(weights == 0, ops.attention(q, v, v, **options)[0] == 0)


def test_multihead_attention_gets_the_kernel_without_a_copy() -> None:
    mha = nn.MultiheadAttention(H * D, H, batch_first=True).eval()
    x = np.random.default_rng(3).standard_normal((N, L, H * D), np.float32)
    keys = np.arange(L) >= np.array([[L], [3], [5]])
    fused = mha(x, x, x, keys, need_weights=False)[0]
    plain = mha(x, x, x, keys, need_weights=True)[0]
    np.testing.assert_allclose(fused, plain, atol=1e-6)
    q, k, v, _ = draw(N)
    out, _ = planned(ops.attention, q, k, v)()
    assert out.swapaxes(1, 2).flags.c_contiguous


def some_rules(heads: int, length: int, source: int) -> dict[str, Rule]:
    """Every form that the kernel knows, and sums of them."""
    random = np.random.default_rng(7)
    hidden = random.random((length, source)) < 0.3
    hidden[1] = True  # nothing to attend to
    floats = random.standard_normal((N, heads, length, source), np.float32)
    floats[floats > 1] = -np.inf
    lengths = np.array([source, source // 2, 1])
    return {
        "causal": rules.causal,
        "window": rules.causal & rules.window(3),
        "lengths": rules.lengths(lengths, lengths // 3),
        "prefix": rules.prefix(lengths // 2),
        "documents": rules.documents(np.array([0, 2, 9])),
        "bounded": rules.bounded(np.arange(length) % 3, np.arange(length) % source),
        "bool mask (L, S)": rules.mask(hidden),
        "bool mask (N, 1, 1, S)": rules.mask(hidden[None, :1, None].repeat(N, 0)),
        "bool mask (N, H, L, 1)": rules.mask(np.arange(length)[None, None, :, None] % 3 == 1),
        "two bool masks": rules.mask(hidden) & rules.mask(hidden[::-1]),
        "float mask": rules.mask(floats),
        "two float masks, one float64": rules.mask(floats) & rules.mask(floats[0, 0].astype(float)),
        "float mask (N, 1, 1, S)": rules.mask(floats[:, :1, :1]),
        "alibi": rules.alibi,
        "soft cap": rules.soft_cap(2.0),
        "sinks": rules.sinks(np.linspace(-2, 3, H).astype(np.float32)) & rules.window(4),
        "sinks, one of them nothing": rules.sinks(np.array([-np.inf, 0.5], np.float32))
        & rules.window(4),
        "cap, distances, masks": rules.soft_cap(3.0) & rules.causal & rules.alibi
        & rules.mask(floats) & rules.mask(hidden),
    }  # fmt: skip


@pytest.mark.parametrize("name", some_rules(H, L, S))
@pytest.mark.parametrize("length, source", [(L, S), (131, 67), (67, 263)])
def test_rules(name: str, length: int, source: int) -> None:
    q, k, v, dout = draw(N, length=length, source=source)
    rule = some_rules(H, length, source)[name]
    options = {"rule": rule, "dropout": 0.2, "rng": named(N, length)}
    compare(ops.attention, (q, k, v), options, dout, cancels=2e-6)


TABLE = [case for case in op_cases() if isinstance(case.fixed.get("rule"), Rule)]


@pytest.mark.parametrize("case", TABLE, ids=[case.name for case in TABLE])
def test_every_rule_of_the_table_has_a_kernel(case: OpCase) -> None:
    arrays = [x.astype(np.float32) for x in case.inputs]
    op, options = getattr(ops, case.op), dict(case.fixed)
    cu = [options.pop(name) for name in ("cu_q", "cu_k") if name in options]
    y, _ = op(*arrays, *cu, **options)
    dy = np.random.default_rng(5).standard_normal(y.shape, np.float32)
    compare(op, (*arrays, *cu), options, dy)


@pytest.mark.parametrize("length", [13, 67, 263])
def test_a_learnt_number_for_each_distance_gets_its_gradient(length: int) -> None:
    """Against float64: the sums cancel, so a few ulp of what is added up."""
    q, k, v, dout = draw(N, length=length, source=length)
    table = np.random.default_rng(9).standard_normal((11, H)).astype(np.float32)

    def run(run_of: Any, dtype: Any) -> Any:
        rule = rules.relative(table.astype(dtype), 20) & rules.window(length // 2)
        arrays = [x.astype(dtype) for x in (q, k, v)]
        y, backward = run_of(ops.attention, *arrays, rule=rule)()
        return y, *backward(dout.astype(dtype))

    exact = run(page, np.float64)
    for found, wanted in zip(run(planned, np.float32), exact, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_a_mask_at_the_end_of_its_memory_is_not_read_beyond() -> None:
    """A row of 7 numbers is no whole vector: what is behind it may be another's memory."""
    page_size = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page_size)
    size = L * S * 4
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(base + page_size), page_size, 0) == 0
    try:
        mask = np.frombuffer(memory, np.float32, L * S, page_size - size).reshape(L, S)
        mask[:] = np.random.default_rng(3).standard_normal((L, S))
        hidden = np.frombuffer(memory, np.bool_, L * S, page_size - size - L * S).reshape(L, S)
        hidden[:] = mask > 1
        q, k, v, dout = draw(N)
        compare(ops.attention, (q, k, v), {"rule": rules.mask(mask)}, dout)
        compare(ops.attention, (q, k, v), {"rule": rules.mask(hidden)}, dout)
    finally:
        libc.mprotect(ctypes.c_void_p(base + page_size), page_size, 3)


def test_a_rule_does_not_change_with_the_array_it_was_made_of() -> None:
    """Kernels remember bounds; the page computes them anew."""
    q, k, v, _ = draw(N)
    last = np.full(N, S)
    rule = rules.lengths(last)
    before, _ = planned(ops.attention, q, k, v, rule=rule)()
    last[:] = 1
    np.testing.assert_array_equal(planned(ops.attention, q, k, v, rule=rule)()[0], before)
    np.testing.assert_allclose(ops.attention(q, k, v, rule=rule)[0], before, atol=1e-6)


def test_blocks_of_keys_that_nobody_sees_are_skipped() -> None:
    """What is in them is not read: NaN there does not matter."""
    q, k, v, dout = draw(1, length=600, source=600)
    k, v = k.copy(), v.copy()
    k[..., 300:400, :] = v[..., 300:400, :] = np.nan
    first, last = np.zeros(600, int), np.full(600, 256)
    first[448:], last[448:] = 512, 600  # blocks are 64 queries and 128 keys
    out, backward = planned(ops.attention, q, k, v, rule=rules.bounded(first, last))()
    dq, dk, dv = backward(dout)
    assert np.isfinite(out).all()
    assert np.isfinite(dq).all()
    assert not dk[..., 256:512, :].any()
    assert not dv[..., 256:512, :].any()


@pytest.mark.parametrize("name", ["none", "window of 2", "lengths", "blocks"])
@pytest.mark.parametrize("length", [1, L, 131])
def test_every_gradient_is_written(length: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of which nobody sees anything get zeros, not what was in memory."""
    q, k, v, dout = draw(N, length=length, source=523)
    rows = np.arange(length)
    rule = {
        "none": Rule(),
        "window of 2": rules.window(2),
        "lengths": rules.lengths(np.array([5, 0, 211])),
        "blocks": rules.bounded(rows * 0 + 300, rows * 0 + 400),
    }[name]
    wanted = page(ops.attention, q, k, v, rule=rule)()[1](dout)
    empty = np.empty

    def unwritten(shape: Any, dtype: Any = float, **options: Any) -> np.ndarray:
        array = empty(shape, dtype, **options)
        if array.dtype.kind == "f":
            array.fill(np.nan)
        return array

    monkeypatch.setattr(np, "empty", unwritten)
    found = planned(ops.attention, q, k, v, rule=rule)()[1](dout)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"rule": rules.soft_cap(2.0) | rules.alibi | rules.soft_cap(3.0)},
        {"dropout": 0.1, "rng": Rng(0)},
        {"dropout": 0.1, "rng": Rng(0).at(row_keys(np.arange(H)[:, None], np.arange(L)))},
    ],
)
def test_rules_and_arrays_that_attention_declines(options: dict[str, Any]) -> None:
    q, k, v, _ = draw(N)
    assert declined(ops.attention, q, k, v, **options)
    assert declined(ops.attention, *(x.astype(np.float64) for x in (q, k, v)))
    assert declined(ops.attention, q[:0], k[:0], v[:0])
    assert declined(ops.attention, q, k[:1], v)
