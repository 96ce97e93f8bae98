from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.training.copying import TRAIN, Reversals, held_out, model

from pellucid.core.batch import Batch
from pellucid.core.rng import Rng
from pellucid.models import Seq2Seq
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import DivergedError, train_step
from pellucid.tasks.scores import held_out_loss
from pellucid.training.config import TrainingConfig

FREE = replace(TRAIN, optimizer=OptimizerConfig(clip=float("inf")))


def batch() -> Batch:
    return Reversals(1, size=13).epoch(0)[0]


def double() -> Seq2Seq:
    config = replace(model().config, encoder_layers=3, dropout=0.2)
    learner = Seq2Seq(config, seed=3, dtype=np.float64)
    return learner.train()


def stepped(config: TrainingConfig) -> tuple[dict[str, np.ndarray], float]:
    learner = double()
    _, norm = train_step(
        learner, ModelOptimizer(learner.named_parameters()), batch(), config, step=4, lr=0.1
    )
    return {k: p.grad for k, p in learner.named_parameters() if p.grad is not None}, norm


@pytest.mark.parametrize("parts", [2, 3, 13, 50])
def test_parts_equal_the_whole_with_the_same_dropout(parts: int) -> None:
    whole, norm = stepped(FREE)
    inparts, norm_in_parts = stepped(replace(FREE, accumulate=parts))
    assert norm_in_parts == pytest.approx(norm, rel=1e-12)
    scale = max(np.abs(g).max() for g in whole.values())
    for name, gradient in whole.items():
        assert np.abs(inparts[name] - gradient).max() < 1e-12 * scale, name


def test_dropout_changes_with_the_step_and_the_seed() -> None:
    norms = set()
    for seed, step in ((0, 1), (0, 2), (1, 1)):
        learner = double()
        config = replace(FREE, seed=seed)
        optimizer = ModelOptimizer(learner.named_parameters())
        norms.add(train_step(learner, optimizer, batch(), config, step=step, lr=0.1)[1])
    assert len(norms) == 3


def test_split_keeps_pairs_and_numbers() -> None:
    whole = batch()
    parts = whole.split(3)
    assert [len(part) for part in parts] == [5, 4, 4]
    assert np.concatenate([p.source.examples for p in parts]).tolist() == list(range(13))
    assert np.concatenate([p.target.tokens for p in parts]).tolist() == whole.target.tokens.tolist()
    assert whole.split(1) == [whole]


@pytest.mark.parametrize("how", ["token", "sentence", "sum"])
def test_normalisation(how: str) -> None:
    given = batch()
    learner = double()
    loss, backward = learner.loss(given, Rng(FREE.seed).fold(4), FREE.label_smoothing)
    divisor = {"token": loss.tokens, "sentence": 13, "sum": 1}[how]
    backward(1.0 / divisor)
    expected = np.sqrt(sum((p.grad**2).sum() for p in learner.parameters() if p.grad is not None))
    assert stepped(replace(FREE, loss_normalisation=how))[1] == pytest.approx(expected, rel=1e-12)


def test_a_step_is_adam_along_the_clipped_mean_gradient() -> None:
    config = replace(FREE, optimizer=OptimizerConfig(clip=0.01, eps=0.1))
    learner, by_hand = double(), double()
    tally, norm = train_step(
        learner,
        ModelOptimizer(learner.named_parameters(), config.optimizer),
        batch(),
        config,
        step=4,
        lr=0.1,
    )
    assert (tally.clipped, tally.steps, tally.sentences) == (1, 1, 13)
    assert norm > 0.01
    loss, backward = by_hand.loss(batch(), Rng(config.seed).fold(4), config.label_smoothing)
    assert (tally.nats, tally.target_tokens) == (loss.nats, loss.tokens)
    backward(0.01 / (norm + 1e-6) / loss.tokens)
    for name, parameter in by_hand.named_parameters():
        if parameter.grad is not None:  # Adam's first step: lr · g / (|g| + ε)
            parameter.data = parameter.data - 0.1 * parameter.grad / (np.abs(parameter.grad) + 0.1)
        np.testing.assert_allclose(
            dict(learner.named_parameters())[name].data, parameter.data, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_or_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    learner = model().train()
    learner.output.bias.data = np.full_like(learner.output.bias.data, bad)
    before = {name: array.copy() for name, array in learner.state_dict().items()}
    with np.errstate(all="ignore"), pytest.raises(DivergedError, match=r"step 9.*0\.125.*loss is"):
        train_step(
            learner, ModelOptimizer(learner.named_parameters()), batch(), TRAIN, step=9, lr=0.125
        )
    for name, array in learner.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_named_and_changes_nothing(
    bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = model().train()
    before = {name: array.copy() for name, array in learner.state_dict().items()}
    loss = learner.loss

    def broken(*args: object, **options: object) -> object:
        total, backward = loss(*args, **options)

        def poisoned(scale: float) -> None:
            backward(scale)
            learner.output.weight.grad[2, 3] = bad

        return total, poisoned

    monkeypatch.setattr(learner, "loss", broken)
    optimizer = ModelOptimizer(learner.named_parameters())
    named = rf"the gradient's norm is {bad} \(in source\.tokens\.weight\)"
    with pytest.raises(DivergedError, match=named):
        train_step(learner, optimizer, batch(), TRAIN, step=1, lr=0.1)
    for name, array in learner.state_dict().items():
        np.testing.assert_array_equal(array, before[name])


def test_held_out_loss_is_the_mean_over_all_tokens() -> None:
    learner = model()
    losses = [learner.eval().loss(b)[0] for b in held_out()]
    expected = sum(x.nats for x in losses) / sum(x.tokens for x in losses)
    assert held_out_loss(learner.train(), held_out()) == pytest.approx(expected, rel=1e-12)
    assert held_out_loss(learner, held_out()) == held_out_loss(learner, held_out())
