"""bfloat16 products in training: what is rounded, what is not, and where they can be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.kernels.compare import HAS_BFLOAT16, HAS_TILES, planned, results, rounded

from pellucid import ops, reference
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.kernels.backend import amx, bfloat16
from pellucid.kernels.precision import bfloat16_products
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.training.config import TrainingConfig

Array = np.ndarray


@pytest.fixture(params=["words", pytest.param("tiles", marks=HAS_TILES)])
def _products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way to multiply numbers of bfloat16."""
    monkeypatch.setattr(amx, "available", lambda: request.param == "tiles")


def on_both(test: Any) -> Any:
    """Mark a test that runs with either."""
    return HAS_BFLOAT16(pytest.mark.usefixtures("_products")(test))


def draw(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def near(y: Array, exact: Array) -> None:
    np.testing.assert_allclose(y, exact, rtol=0, atol=2e-6 * np.abs(exact).max())


def rounded64(*arrays: Array) -> list[Array]:
    return [rounded(x).astype(np.float64) for x in arrays]


@on_both
def test_linear_multiplies_rounded_numbers_and_adds_the_others() -> None:
    x, weight, bias, dy = draw(131, 37), draw(71, 37), draw(71), draw(131, 71)
    with bfloat16_products():
        run = planned(ops.linear, x, weight, bias)
    y, dx, dweight, dbias = results(run, dy)  # backward after the block: as forward did
    of_x, of_weight, of_dy = rounded64(x, weight, dy)
    near(y, of_x @ of_weight.T + bias)
    near(dx, of_dy @ of_weight)
    near(dweight, of_dy.T @ of_x)
    near(dbias, dy.sum(axis=0, dtype=np.float64))
    plain = results(planned(ops.linear, x, weight, bias), dy)
    near(plain[0], x.astype(np.float64) @ weight.T + bias)


@on_both
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_rounded_rows_and_weights(smoothing: float) -> None:
    x, weight, bias = draw(131, 17), draw(53, 17), draw(53)
    target = np.random.default_rng(0).integers(0, 53, 131)
    target[::5] = -100
    options = {"label_smoothing": smoothing}
    with bfloat16_products():
        run = planned(ops.linear_cross_entropy, x, weight, bias, target, **options)
    loss, dx, dweight, dbias = results(run, np.float32(1.0))
    of_x, of_weight = rounded64(x, weight)
    exact, saved = ops.linear_cross_entropy(
        of_x, of_weight, bias.astype(np.float64), target, **options
    )
    np.testing.assert_allclose(loss, exact, rtol=1e-6)
    expected = ops.linear_cross_entropy_backward(np.float64(1.0), saved)
    near(dbias, expected[2])
    for found, wanted in zip((dx, dweight), expected, strict=False):  # of rounded logits' gradients
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-8 * np.abs(wanted).max())


@on_both
def test_a_row_has_the_same_bits_whatever_the_other_rows() -> None:
    x, weight, bias = draw(331, 37), draw(71, 37), draw(71)
    with bfloat16_products():
        whole, _ = planned(ops.linear, x, weight, bias)()
        for some in (slice(0, 13), slice(1, 200), slice(330 - 11, 331)):
            y, _ = planned(ops.linear, x[some], weight, bias)()
            np.testing.assert_array_equal(y, whole[some])


@on_both
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_stay_in_their_row(value: float) -> None:
    x, weight = draw(23, 11), draw(13, 11)
    x[5, 3] = value
    with bfloat16_products():
        y = planned(ops.linear, x, weight)()[0]
    assert not np.isfinite(y[5]).any()
    assert np.isfinite(np.delete(y, 5, axis=0)).all()


def trained(steps: int) -> tuple[list[float], dict[str, Array]]:
    """Train a model to copy; return the losses and weights."""
    sizes: dict[str, Any] = {"encoder_layers": 1, "decoder_layers": 1, "ffn_dim": 48}
    config = Seq2SeqConfig(31, 31, d_model=32, num_attention_heads=2, **sizes)
    model = Seq2Seq(replace(config, activation_function="swiglu"))
    settings = TrainingConfig(steps=steps)
    optimizer = ModelOptimizer(model.named_parameters(), settings.optimizer)
    draws, losses = np.random.default_rng(0), []
    for step in range(1, steps + 1):
        words = [draws.integers(3, 31, draws.integers(3, 8)) for _ in range(29)]
        batch = Batch(Packed.of(words), Packed.of([[1, *ids, 2] for ids in words]))
        tally, _ = train_step(model, optimizer, batch, settings, step=step, lr=3e-3)
        losses.append(tally.nats / tally.target_tokens)
    return losses, {name: p.data for name, p in model.named_parameters()}


@on_both
def test_a_model_learns_as_with_float32_and_its_weights_are_float32() -> None:
    plain, weights = trained(120)
    with bfloat16_products():
        losses, narrow = trained(120)
    assert losses[0] == pytest.approx(plain[0], rel=1e-2)
    assert np.mean(losses[-20:]) == pytest.approx(np.mean(plain[-20:]), rel=0.1)
    assert np.mean(plain[-20:]) < 0.8 * plain[0]
    for name, weight in narrow.items():
        assert weight.dtype == np.float32
        assert (weight != rounded(weight)).any(), name
    assert any((narrow[name] != weights[name]).any() for name in weights)


def test_they_are_refused_where_they_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "AVAILABLE", False)
    with pytest.raises(UserError, match="needs a processor with AVX512-BF16"):
        bfloat16_products()
    monkeypatch.setattr(bfloat16, "AVAILABLE", True)
    with reference(), pytest.raises(UserError, match="PELLUCID_KERNELS=off"):
        bfloat16_products()


def test_the_block_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bfloat16, "AVAILABLE", True)
    from pellucid.kernels.precision import rounded as are_rounded

    def inside() -> Any:
        with bfloat16_products():
            assert are_rounded()
            raise ValueError("an error")

    with pytest.raises(ValueError, match="an error"):
        inside()
    assert not are_rounded()
