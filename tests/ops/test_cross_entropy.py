from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.libraries import LIBRARIES, back, every_library, to

from pellucid.ops import (
    cross_entropy,
    cross_entropy_backward,
    linear,
    linear_backward,
    linear_cross_entropy,
    linear_cross_entropy_backward,
)

T, V, E = 11, 7, 5
INF = np.inf


def drawn(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    return 2.0 * g.standard_normal((T, V)), g.integers(0, V, T)


def one(loss: Any = 1.0) -> np.ndarray:
    return np.asarray(loss, np.float64)


def test_a_confident_wrong_answer_costs_its_logit_and_no_overflow() -> None:
    loss, saved = cross_entropy(np.array([[1000.0, 0.0]]), np.array([1]))
    assert loss == 1000.0
    assert cross_entropy_backward(one(), saved).tolist() == [[1.0, -1.0]]


def test_a_forbidden_class_costs_nothing_unless_it_was_wanted() -> None:
    logits = np.array([[0.0, -INF, 0.0], [0.0, -INF, 0.0]])
    loss, saved = cross_entropy(logits, np.array([0, 2]))
    assert loss == pytest.approx(np.log(2))
    np.testing.assert_allclose(
        cross_entropy_backward(one(), saved), [[-0.25, 0, 0.25], [0.25, 0, -0.25]]
    )
    assert cross_entropy(logits, np.array([0, 1]))[0] == INF
    assert cross_entropy(logits, np.array([0, 2]), label_smoothing=0.1)[0] == INF


def test_ignored_rows_count_for_nothing() -> None:
    logits, target = drawn()
    target[[2, 5]] = -100
    logits[2] = np.nan  # not even this
    kept = np.setdiff1d(np.arange(T), [2, 5])
    for reduction in ("mean", "sum"):
        for smoothing in (0.0, 0.2):
            options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
            loss, saved = cross_entropy(logits, target, **options)
            expected, expected_saved = cross_entropy(logits[kept], target[kept], **options)
            assert loss == pytest.approx(expected, rel=1e-14)
            dlogits = cross_entropy_backward(one(), saved)
            exact = cross_entropy_backward(one(), expected_saved)
            np.testing.assert_allclose(dlogits[kept], exact, rtol=1e-13)
            assert not np.nan_to_num(dlogits[5]).any()
    losses, _ = cross_entropy(logits, target, reduction="none")
    assert losses[[2, 5]].tolist() == [0.0, 0.0]


def test_the_ignored_class_may_be_a_real_one() -> None:
    logits, target = drawn()
    loss, _ = cross_entropy(logits, target, ignore_index=int(target[0]))
    kept = target != target[0]
    assert loss == pytest.approx(cross_entropy(logits[kept], target[kept])[0])


@pytest.mark.parametrize("rows", [0, 3])
def test_nothing_left_to_average(rows: int) -> None:
    """The mean of no number is NaN, said without a warning; it moves nothing."""
    logits, target = np.ones((rows, V)), np.full(rows, -100)
    loss, saved = cross_entropy(logits, target)
    assert np.isnan(loss)
    assert np.array_equal(cross_entropy_backward(one(), saved), np.zeros((rows, V)))
    total, saved = cross_entropy(logits, target, reduction="sum")
    assert total == 0.0
    assert not cross_entropy_backward(one(), saved).any()


@pytest.mark.parametrize("library", LIBRARIES)
def test_logits_of_integers_are_refused(library: str) -> None:
    logits, target = to(library, np.ones((T, V), np.int64)), to(library, np.zeros(T, np.int64))
    with pytest.raises(TypeError, match=r"logits of float32 or float64, got .*int64"):
        cross_entropy(logits, target)


def test_label_smoothing_is_a_mixture_with_the_uniform() -> None:
    logits, target = drawn()
    hard = cross_entropy(logits, target, reduction="none")[0]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for smoothing in (0.0, 0.1, 1.0):
        mixed = cross_entropy(logits, target, label_smoothing=smoothing, reduction="none")[0]
        np.testing.assert_allclose(mixed, (1 - smoothing) * hard - smoothing * log_p.mean(-1))


def test_class_weights_also_divide_the_mean() -> None:
    logits, target = drawn()
    weight = 0.1 + np.arange(V)
    each = cross_entropy(logits, target, reduction="none")[0]
    loss, _ = cross_entropy(logits, target, weight=weight)
    assert loss == pytest.approx((weight[target] * each).sum() / weight[target].sum())
    total, _ = cross_entropy(logits, target, weight=weight, reduction="sum")
    assert total == pytest.approx((weight[target] * each).sum())


def test_probabilities_that_are_all_on_one_class_are_that_class() -> None:
    logits, target = drawn()
    soft = np.eye(V)[target]
    for options in ({}, {"label_smoothing": 0.1}, {"reduction": "sum"}, {"reduction": "none"}):
        hard, hard_saved = cross_entropy(logits, target, **options)
        loss, saved = cross_entropy(logits, soft, **options)
        np.testing.assert_allclose(loss, hard, rtol=1e-14)
        dloss = np.ones_like(loss)
        np.testing.assert_array_equal(
            cross_entropy_backward(dloss, saved), cross_entropy_backward(dloss, hard_saved)
        )


def test_probabilities_keep_the_dtype_of_the_logits() -> None:
    logits, target = drawn()
    loss, saved = cross_entropy(logits.astype(np.float32), np.eye(V)[target], weight=np.ones(V))
    assert loss.dtype == np.float32
    assert cross_entropy_backward(np.float32(1), saved).dtype == np.float32


def test_a_row_of_probabilities_alone() -> None:
    loss, saved = cross_entropy(np.zeros(4), np.array([0.5, 0.5, 0.0, 0.0]))
    assert loss == pytest.approx(np.log(4))
    np.testing.assert_allclose(cross_entropy_backward(one(), saved), [-0.25, -0.25, 0.25, 0.25])


@pytest.mark.parametrize("target", [[0, V], [-1, 0], [-101, 0]])
@every_library
def test_a_class_outside_is_an_error(target: list[int], library: str) -> None:
    with pytest.raises(IndexError, match=rf"targets must lie in \[0, {V}\).*ignore_index"):
        cross_entropy(to(library, np.zeros((2, V))), to(library, np.array(target)))


@every_library
def test_small_integers_do(library: str) -> None:
    logits, target = drawn()
    found, _ = cross_entropy(to(library, logits), to(library, target.astype(np.uint8)))
    assert float(back(found)) == pytest.approx(float(cross_entropy(logits, target)[0]))


def test_what_does_not_fit_is_said() -> None:
    logits, target = drawn()
    with pytest.raises(ValueError, match=r"got logits \(11, 7\) and targets \(10,\)"):
        cross_entropy(logits, target[1:])
    with pytest.raises(ValueError, match="got a single number"):
        cross_entropy(logits[0, 0], target[0])
    with pytest.raises(ValueError, match="of float64"):
        cross_entropy(logits, target.astype(float))
    with pytest.raises(ValueError, match="of integers"):
        cross_entropy(logits, np.ones((T, V), int))
    with pytest.raises(ValueError, match=r"label_smoothing must lie between 0 and 1, got 1\.5"):
        cross_entropy(logits, target, label_smoothing=1.5)
    with pytest.raises(ValueError, match='"none", "sum" or "mean", got \'average\''):
        cross_entropy(logits, target, reduction="average")
    with pytest.raises(ValueError, match="names a class number"):
        cross_entropy(logits, np.full((T, V), 1 / V), ignore_index=0)


@pytest.mark.oracle("torch")
@pytest.mark.parametrize("seed", range(60))
def test_equals_torch_at_any_combination(seed: int) -> None:
    import torch

    g = np.random.default_rng(seed)
    logits, target = drawn(seed)
    soft = bool(g.integers(2))
    options: dict[str, Any] = {
        "label_smoothing": float(g.choice([0.0, 0.1, 1.0])),
        "reduction": str(g.choice(["mean", "sum", "none"])),
    }
    if not soft:
        options["ignore_index"] = int(g.choice([-100, 0, 3, V + 2]))
        target[g.random(T) < 0.2] = options["ignore_index"]
    weight = g.random(V) + 0.1 if g.integers(2) else None
    wanted = g.dirichlet(np.ones(V), T) if soft else target
    x = torch.tensor(logits, requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(
        x, torch.tensor(wanted), None if weight is None else torch.tensor(weight), **options
    )
    dloss = g.standard_normal(theirs.shape)
    theirs.backward(torch.tensor(dloss))
    loss, saved = cross_entropy(logits, wanted, weight=weight, **options)
    np.testing.assert_allclose(loss, theirs.detach().numpy(), rtol=1e-12, atol=1e-14)
    dlogits = cross_entropy_backward(np.asarray(dloss), saved)
    np.testing.assert_allclose(dlogits, x.grad.numpy(), rtol=1e-11, atol=1e-14)


@pytest.mark.oracle("torch")
def test_torch_too_gives_nan_and_no_gradient_to_the_mean_of_nothing() -> None:
    import torch

    x = torch.ones((3, V), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(x, torch.full((3,), -100))
    loss.backward()
    assert loss.isnan()
    assert not x.grad.any()


def projected() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    g = np.random.default_rng(9)
    target = g.integers(0, V, T)
    target[3] = -100
    return g.standard_normal((T, E)), g.standard_normal((V, E)), g.standard_normal(V), target


@pytest.mark.parametrize("chunk", [1, 3, T - 1, T, 1024])
@pytest.mark.parametrize("with_bias", [True, False])
def test_in_chunks_as_in_one(chunk: int, with_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(linear_cross_entropy.__globals__, "CHUNK", chunk)
    x, weight, bias, target = projected()
    b = bias if with_bias else None
    loss, saved = linear_cross_entropy(x, weight, b, target, label_smoothing=0.1)
    dx, dweight, dbias = linear_cross_entropy_backward(one(0.7), saved)
    logits, linear_saved = linear(x, weight, b)
    whole, whole_saved = cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    expected = linear_backward(cross_entropy_backward(one(0.7), whole_saved), linear_saved)
    assert loss == pytest.approx(whole, rel=1e-13)
    np.testing.assert_allclose(dx, expected[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dweight, expected[1], rtol=1e-12, atol=1e-14)
    assert (dbias is None) == (not with_bias)
    if with_bias:
        np.testing.assert_allclose(dbias, expected[2], rtol=1e-12, atol=1e-14)


def test_no_rows_cost_nothing() -> None:
    x, weight, bias, target = projected()
    loss, saved = linear_cross_entropy(x[:0], weight, bias, target[:0])
    assert loss == 0.0
    dx, dweight, dbias = linear_cross_entropy_backward(one(), saved)
    assert dx.shape == (0, E)
    assert not dweight.any()
    assert not dbias.any()
