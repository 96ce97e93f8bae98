"""The functions of torch.nn.functional: the same arguments and numbers, and a way back."""

from __future__ import annotations

import contextlib
import inspect
import re
from typing import Any

import numpy as np
import pytest
from tests.nn import compare

import pellucid
from pellucid.nn import LayerNorm, MultiheadAttention, functional

CALLS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("linear", [(2, 5, 3), (7, 3), (7,)], {}),
    ("linear", [(5, 3), (7, 3)], {}),
    ("relu", [(5, 3)], {}),
    ("leaky_relu", [(5, 3)], {"negative_slope": 0.2}),
    ("gelu", [(5, 3)], {}),
    ("gelu", [(5, 3)], {"approximate": "tanh"}),
    ("silu", [(5, 3)], {}),
    ("softmax", [(5, 3, 7)], {"dim": 1}),
    ("softmax", [(5, 3, 7)], {"dim": -1}),
    ("log_softmax", [(5, 3, 7)], {"dim": 0}),
    ("softmax", [()], {"dim": 0}),
    ("log_softmax", [()], {"dim": -1}),
    ("dropout", [(5, 3)], {"training": False}),
    ("layer_norm", [(2, 5, 3), (3,), (5, 3), (5, 3)], {}),
    ("scaled_dot_product_attention", [(2, 3, 5), (2, 7, 5), (2, 7, 4)], {"scale": 0.3}),
]


def arguments(name: str, shapes: list[tuple[int, ...]]) -> list[Any]:
    g = np.random.default_rng(0)
    arrays: list[Any] = [g.standard_normal(shape) for shape in shapes]
    if name == "layer_norm":  # its second argument is a shape
        arrays[1] = shapes[2]
    return arrays


@pytest.mark.parametrize(("name", "shapes", "options"), CALLS)
@pytest.mark.oracle("torch")
def test_equals_torch(name: str, shapes: list[tuple[int, ...]], options: dict[str, Any]) -> None:
    import torch

    inputs = arguments(name, shapes)
    y, backward = getattr(functional, name).forward(*inputs, **options)
    dy = np.random.default_rng(1).standard_normal(y.shape)
    gradients = backward(dy)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    given = [
        torch.from_numpy(x).requires_grad_() if isinstance(x, np.ndarray) else x for x in inputs
    ]
    theirs = getattr(torch.nn.functional, name)(*given, **options)
    theirs.backward(torch.from_numpy(dy))
    expected = [x.grad.numpy() for x in given if not isinstance(x, tuple)]
    found = {str(i): g for i, g in enumerate(g for g in gradients if g is not None)}
    errors = compare.errors(
        found | {"y": y},
        {str(i): g for i, g in enumerate(expected)} | {"y": theirs.detach().numpy()},
    )
    assert max(errors.values()) <= 1e-12, errors
    np.testing.assert_array_equal(getattr(functional, name)(*inputs, **options), y)


@pytest.mark.parametrize(("name", "shapes", "options"), CALLS)
def test_a_gradient_of_another_shape_is_refused(
    name: str, shapes: list[tuple[int, ...]], options: dict[str, Any]
) -> None:
    f, inputs = getattr(functional, name), arguments(name, shapes)
    shape = f(*inputs, **options).shape
    for other in compare.other_shapes(shape):
        with pytest.raises(ValueError, match=re.escape(f"{shape}, got {other}")):
            f.forward(*inputs, **options)[1](np.ones(other))


@pytest.mark.parametrize("name", functional.__all__)
@pytest.mark.oracle("torch")
def test_arguments_are_torchs(name: str) -> None:
    import torch

    theirs = getattr(torch.nn.functional, name)
    ours = {
        p.name: p.default
        for p in inspect.signature(getattr(functional, name)).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD
    }
    try:
        expected = {p.name: p.default for p in inspect.signature(theirs).parameters.values()}
    except ValueError:  # a builtin, which says its arguments in the first line of its text
        assert theirs.__doc__ is not None
        line = theirs.__doc__.strip().splitlines()[0]
        if name == "scaled_dot_product_attention":
            line = "".join(theirs.__doc__.strip().splitlines()[:2])
        written = line.partition("(")[2].partition(")")[0]
        names = [part.partition("=")[0].strip() for part in written.split(",")]
        assert list(ours) == [n for n in names if n != "*"]
        return
    for spare in ("_stacklevel", "dtype"):
        expected.pop(spare, None)
    if name in ("softmax", "log_softmax"):  # torch guesses the axis, and warns; here it is asked
        expected["dim"] = inspect.Parameter.empty
    assert ours == expected


def test_shared_heads_get_the_sum_of_their_gradients() -> None:
    g = np.random.default_rng(0)
    q = g.standard_normal((2, 6, 5, 3))
    k, v = g.standard_normal((2, 2, 7, 3)), g.standard_normal((2, 3, 7, 4))
    y, backward = functional.scaled_dot_product_attention.forward(q, k, v, enable_gqa=True)
    dq, dk, dv = backward(np.ones_like(y))
    wide_k, wide_v = np.repeat(k, 3, axis=1), np.repeat(v, 2, axis=1)
    wide, wide_backward = functional.scaled_dot_product_attention.forward(q, wide_k, wide_v)
    expected_q, expected_k, expected_v = wide_backward(np.ones_like(y))
    np.testing.assert_allclose(y, wide, rtol=1e-12)
    np.testing.assert_allclose(dq, expected_q, rtol=1e-12)
    np.testing.assert_allclose(dk, expected_k.reshape(2, 2, 3, 7, 3).sum(2), rtol=1e-12)
    np.testing.assert_allclose(dv, expected_v.reshape(2, 3, 2, 7, 4).sum(2), rtol=1e-12)


KEPT: list[tuple[str, Any]] = [
    ("softmax", lambda x: functional.softmax.forward(x, 0)),
    ("log_softmax", lambda x: functional.log_softmax.forward(x, -1)),
    ("layer_norm", lambda x: functional.layer_norm.forward(x, x.shape[-1:])),
    ("LayerNorm", lambda x: LayerNorm(5, elementwise_affine=False, dtype=x.dtype).forward(x)),
    ("many keys", lambda x: functional.scaled_dot_product_attention.forward(x, x, x)),
    ("weights", lambda x: heads().forward(x, x, x, average_attn_weights=False)),
]


def heads() -> MultiheadAttention:
    return MultiheadAttention(5, 1, batch_first=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("forward", [f for _, f in KEPT], ids=[name for name, _ in KEPT])
def test_what_a_way_back_reads_cannot_be_written_to(forward: Any, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 131, 5)).astype(dtype)

    def results_and_gradients(write: bool) -> list[np.ndarray]:
        y, backward = forward(x)
        ys = y if isinstance(y, tuple) else (y,)
        before = [y.copy() for y in ys]
        for y in ys if write else ():
            with contextlib.suppress(ValueError):  # read-only
                y += 1
        dx = backward(*(np.cos(y) for y in before))
        return [*before, *(dx if isinstance(dx, tuple) else (dx,))]

    for a, b in zip(results_and_gradients(True), results_and_gradients(False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_result_without_its_way_back_is_ones_own() -> None:
    x = np.random.default_rng(0).standard_normal((2, 131, 5)).astype(np.float32)
    for y in (
        functional.softmax(x, 1),
        functional.log_softmax(x, 0),
        functional.layer_norm(x.astype(np.float64), (5,)),
        functional.scaled_dot_product_attention(x, x, x),
        LayerNorm(5, elementwise_affine=False, dtype=np.float64)(x.astype(np.float64)),
        heads()(x, x, x, average_attn_weights=False)[1],
        heads()(x, x, x)[1],
    ):
        y += 1


def test_a_result_that_no_way_back_reads_can_be_written_to() -> None:
    x = np.random.default_rng(0).standard_normal((2, 7, 5)).astype(np.float32)
    few, _ = functional.scaled_dot_product_attention.forward(x, x, x)
    normed, _ = LayerNorm(5).forward(x)
    (out, averaged), _ = heads().forward(x, x, x)
    for y in (few, normed, out, averaged):
        y += 1


def test_true_means_may_attend_here_and_only_here() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 3, 6))
    may = np.array([[True, False, False], [True, True, False], [False, False, True]])
    y = functional.scaled_dot_product_attention(x, x, x, may)
    np.testing.assert_allclose(y[0, 0, 0], x[0, 0, 0])
    np.testing.assert_allclose(y[0, 0, 2], x[0, 0, 2])
    mha = pellucid.nn.MultiheadAttention(6, 1, batch_first=True, dtype=np.float64)
    weights = mha(x[0], x[0], x[0], attn_mask=~may)[1]
    np.testing.assert_array_equal(weights[0] > 0, may)


def test_dead_queries_get_zeros_and_give_zero_gradient() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 5))
    may = np.ones((3, 3), bool)
    may[1] = False
    for mask in (may, np.where(may, 0.0, -np.inf)):
        y, backward = functional.scaled_dot_product_attention.forward(x, x, x, mask)
        assert not y[:, 1].any()
        dy = np.zeros_like(y)
        dy[:, 1] = 1.0
        for gradient in backward(dy):
            assert not gradient.any()


def test_dropout_draws_the_same_mask_forward_and_backward() -> None:
    x, rng = np.ones((5, 101)), pellucid.Rng(3)
    y, backward = functional.dropout.forward(x, 0.3, rng=rng)
    np.testing.assert_array_equal(backward(x), y)
    np.testing.assert_array_equal(np.unique(y), [0.0, 1 / 0.7])
    assert 0.6 < (y > 0).mean() < 0.8
    q = np.random.default_rng(0).standard_normal((2, 3, 5))
    y, backward = functional.scaled_dot_product_attention.forward(q, q, q, None, 0.3, rng=rng)
    assert np.isfinite(y).all()
    h, dy = 1e-6, np.ones_like(y)
    moved = q.copy()
    moved[1, 2, 3] += h
    again = functional.scaled_dot_product_attention(moved, q, q, None, 0.3, rng=rng)
    np.testing.assert_allclose(backward(dy)[0][1, 2, 3], (again - y).sum() / h, rtol=1e-4)


def test_a_loss_of_one_number_needs_no_gradient_whatever_its_shape() -> None:
    x, target = np.array([[1.0, 2.0, 4.0]]), np.array([1])
    one = functional.cross_entropy.forward(x, target, reduction="none")[1]()
    assert np.array_equal(one, functional.cross_entropy.forward(x, target)[1]())
    with pytest.raises(ValueError, match=r"expected \(2,\), got \(\)"):
        functional.cross_entropy.forward(np.ones((2, 3)), target.repeat(2), reduction="none")[1]()


def test_one_number_is_a_row_of_one() -> None:
    y, backward = functional.softmax.forward(np.array(3.0), -1)
    assert (y, y.shape, backward(np.array(2.0)).shape) == (1.0, (), ())
    with pytest.raises(ValueError, match=r"dim must be an axis of input, which has shape \(\)"):
        functional.softmax(np.array(3.0), 1)


@pytest.mark.parametrize(("reduction", "loss"), [("mean", np.nan), ("sum", 0.0), ("none", 0.0)])
def test_class_probabilities_of_no_class_have_a_loss(reduction: str, loss: float) -> None:
    nothing = np.zeros((5, 0), np.float32)
    y, backward = functional.cross_entropy.forward(nothing, nothing, reduction=reduction)
    np.testing.assert_array_equal(y, np.full(y.shape, loss))
    assert backward(np.ones_like(y)).shape == (5, 0)


def test_a_padding_index_counts_the_rows_of_the_table_and_not_its_width() -> None:
    index, weight = np.array([0, 6, 4]), np.ones((7, 3))
    for padding_idx in (-1, 6):
        _, backward = functional.embedding.forward(index, weight, padding_idx)
        np.testing.assert_array_equal(backward(np.ones((3, 3))).sum(axis=1), [3, 0, 0, 0, 3, 0, 0])
    with pytest.raises(ValueError, match="padding_idx"):
        functional.embedding(index, weight, 7)
