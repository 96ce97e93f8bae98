"""Arrays of no size, very long rows, and numbers that no layer is for."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import HAS_KERNELS, compare

from pellucid import nn, ops
from pellucid.nn.module import Parameter
from pellucid.optim.model import ModelOptimizer

F = nn.functional


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize(
    ("length", "keys", "width", "value_width"),
    [(3, 4, 0, 2), (3, 4, 0, 0), (3, 4, 2, 0), (0, 4, 2, 2), (3, 0, 2, 2), (0, 0, 0, 0)],
)
@pytest.mark.oracle("torch")
def test_attention_of_arrays_of_no_size_is_torchs(
    length: int, keys: int, width: int, value_width: int, batch: int, dtype: Any
) -> None:
    import torch

    g = np.random.default_rng(0)
    shapes = (batch, 5, length, width), (batch, 5, keys, width), (batch, 5, keys, value_width)
    arrays = [g.standard_normal(shape).astype(dtype) for shape in shapes]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    theirs = torch.nn.functional.scaled_dot_product_attention(*tensors)
    y, backward = F.scaled_dot_product_attention.forward(*arrays)
    np.testing.assert_allclose(y, theirs.detach().numpy(), rtol=1e-6, atol=1e-6)
    theirs.sum().backward()
    for ours, tensor in zip(backward(np.ones_like(y)), tensors, strict=True):
        np.testing.assert_allclose(ours, tensor.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("targets", [3, 0])
@pytest.mark.oracle("torch")
def test_the_loss_of_no_target_is_torchs(targets: int) -> None:
    import torch

    x, ignored = np.ones((targets, 5), np.float32), np.full(targets, -100)
    for reduction in ("mean", "sum", "none"):
        tensor = torch.tensor(x, requires_grad=True)
        theirs = torch.nn.functional.cross_entropy(
            tensor, torch.tensor(ignored), reduction=reduction
        )
        theirs.sum().backward()
        loss, backward = F.cross_entropy.forward(x, ignored, reduction=reduction)
        np.testing.assert_array_equal(loss, theirs.detach().numpy())
        np.testing.assert_array_equal(backward(np.ones_like(loss)), tensor.grad.numpy())


@HAS_KERNELS
@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize("width", [2**14, 2**18, 2**22])
@pytest.mark.parametrize("norm", [ops.layer_norm, ops.rms_norm])
def test_norms_of_long_rows_are_near_float64(norm: Any, width: int, mean: float) -> None:
    """On every processor: the kernel once summed whole rows in as many parts as vectors have."""
    g = np.random.default_rng(0)
    x = (g.standard_normal((2, width)) + mean).astype(np.float32)
    dy = g.standard_normal(x.shape).astype(np.float32)
    compare(norm, (x,), {}, dy)


@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.oracle("torch")
def test_layer_norm_of_long_rows_is_as_near_as_torchs(mean: float) -> None:
    import torch

    g, width = np.random.default_rng(0), 2**18
    x = (g.standard_normal((2, width)) + mean).astype(np.float32)
    dy = g.standard_normal(x.shape).astype(np.float32)

    def theirs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        tensor = torch.tensor(x.astype(dtype), requires_grad=True)
        y = torch.nn.functional.layer_norm(tensor, (width,))
        y.backward(torch.tensor(dy.astype(dtype)))
        return y.detach().numpy(), tensor.grad.numpy()

    y, backward = F.layer_norm.forward(x, (width,))
    for ours, torchs, exact in zip(
        (y, backward(dy)[0]), theirs(np.float32), theirs(np.float64), strict=True
    ):
        allowed = 1.5 * np.abs(torchs - exact).max()
        assert np.abs(ours - exact).max() <= allowed + 2 * np.spacing(np.float32(1))


NUMBERS = [np.complex64, np.complex128, object, np.longdouble, bool, "U3", "M8[s]", "V4"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize(
    "call",
    [
        nn.Linear(4, 2), nn.LayerNorm(4), nn.ReLU(), nn.LeakyReLU(), nn.GELU(), nn.SiLU(),
        nn.Dropout().eval(), nn.TransformerEncoderLayer(4, 2, 5).eval(),
        lambda x: nn.MultiheadAttention(4, 2)(x, x, x),
        lambda x: F.softmax(x, -1), lambda x: F.log_softmax(x, -1),
        lambda x: F.scaled_dot_product_attention(x, x, x),
        lambda x: nn.CrossEntropyLoss()(x, np.zeros(3, int)),
        lambda x: nn.Linear(4, 2, dtype=x.dtype),
    ],
)  # fmt: skip
def test_numbers_that_no_derivative_is_for_are_refused(call: Any, dtype: Any) -> None:
    if np.dtype(dtype) == np.float64:
        pytest.skip("a long double is a float64 here")
    with pytest.raises(TypeError, match="float32 or float64, got"):
        call(np.ones((3, 4), np.int64).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("f", [F.softmax, F.log_softmax])
def test_small_integers_are_computed_in_float64(f: Any, dtype: Any) -> None:
    x = np.ones((3, 3000), dtype)  # in float16 the exponentials would sum to 2048
    for g in (lambda x: f(x, -1), nn.SiLU()):
        np.testing.assert_array_equal(g(x), g(x.astype(np.float64)), strict=True)


@pytest.mark.parametrize(
    ("layers", "error"), [(-1, ValueError), (1.5, TypeError), ("2", TypeError)]
)
def test_a_number_of_layers_that_is_none_is_refused(layers: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 5), layers)


@pytest.mark.parametrize("sizes", [(-1, 3), (3, -1), (1.5, 3)])
@pytest.mark.parametrize("kind", [nn.Linear, nn.Embedding])
def test_a_size_below_zero_is_refused_by_name(kind: Any, sizes: tuple[Any, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match="sizes of a parameter"):
        kind(*sizes)


@pytest.mark.parametrize("eps", [-1e-5, float("nan")])
def test_an_eps_below_zero_is_refused(eps: float) -> None:
    for build in (
        lambda: nn.LayerNorm(4, eps),
        lambda: nn.TransformerEncoderLayer(4, 2, 5, layer_norm_eps=eps),
        lambda: F.layer_norm(np.ones((2, 4)), (4,), eps=eps),
    ):
        with pytest.raises(ValueError, match="eps must be at least 0"):
            build()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_factors_that_are_not_finite_are_refused(value: float) -> None:
    for what, build in (
        ("negative_slope", lambda: nn.LeakyReLU(value)),
        ("negative_slope", lambda: F.leaky_relu(np.ones(2), value)),
        ("scale", lambda: nn.MultiheadAttention(4, 2, scale=value)),
        ("scale", lambda: F.scaled_dot_product_attention(*[np.ones((2, 3, 4))] * 3, scale=value)),
    ):
        with pytest.raises(ValueError, match=f"{what} must be a number of at most 9.2e"):
            build()


def test_a_learning_rate_that_is_not_finite_steps_nothing() -> None:
    weight = Parameter((2,), lambda g, shape: np.zeros(shape))
    weight.grad = np.ones(2, np.float32)
    optimizer = ModelOptimizer({"weight": weight})
    for lr, scale in ((float("nan"), 1.0), (0.1, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(ValueError, match="lr and scale must be finite"):
            optimizer.step(lr, scale)
    np.testing.assert_array_equal(weight.data, 0.0)
    optimizer.step(0.1)
    assert (weight.data < 0).all()


def test_a_nan_is_loaded_into_a_module_as_in_torch() -> None:
    layer = nn.Linear(3, 2)
    layer.load_state_dict({"weight": np.full((2, 3), np.nan), "bias": np.zeros(2)})
    assert np.isnan(layer.weight.data).all()


def test_an_array_that_begins_between_two_numbers() -> None:
    """As one does that was read behind a header of odd length."""

    def unaligned(x: np.ndarray) -> np.ndarray:
        return np.frombuffer(b"0" + x.tobytes(), x.dtype, offset=1).reshape(x.shape)

    near = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    g = np.random.default_rng(0)
    x, dy, weight = (g.standard_normal((13, 13), np.float32) for _ in range(3))
    for layer in (nn.Linear(13, 13), nn.LayerNorm(13), nn.Dropout(0.0)):
        expected, given = (layer.forward(x)[1](d) for d in (dy, unaligned(dy)))
        near(given, expected)
    near(F.linear(x, unaligned(weight)), F.linear(x, weight))
    index = np.array([2, 0, 2])
    expected, given = (F.embedding.forward(i, weight)[1](dy[:3]) for i in (index, unaligned(index)))
    near(given, expected)
    y, backward = F.linear.forward(x, weight, unaligned(dy[0]))
    near(y, F.linear(x, weight, dy[0]))
    near(backward(unaligned(dy))[0], F.linear.forward(x, weight)[1](dy)[0])
