"""The same bits on any number of workers; here they are threads that talk through gloo."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.training.copying import Reversals, model
from tests.training.together import FAMILIES, IN_PARTS, assert_equal, together, train

import pellucid
from pellucid.core.errors import UsageError, UserError
from pellucid.models.output import LossSum
from pellucid.nn.init import zeros
from pellucid.nn.module import Parameter
from pellucid.training.config import OptimizerConfig
from pellucid.training.optimizers import OPTIMIZERS
from pellucid.training.optimizers.model import ModelOptimizer, global_norm
from pellucid.training.optimizers.sharded import BLOCK, BUCKET, ShardedOptimizer, block_squares
from pellucid.training.step import train_step
from pellucid.training.workers import Workers


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.oracle("torch")
def test_bits_do_not_depend_on_the_number_of_workers(family: str, kernels: bool) -> None:
    """With dropout and clipping, and a validation, of averages, that the workers divide."""
    config = replace(
        IN_PARTS, steps=50 if kernels else 15, validate_every=25, log_every=1, use="ema"
    )

    def work(workers: Workers) -> dict[str, Any]:
        with nullcontext() if kernels else pellucid.reference():
            return train(family, config, workers)

    [expected] = together(1, work)
    assert any(e.get("clipped") for e in expected["events"])
    for size in (2, 4, 8) if kernels else (4,):
        first, *others = together(size, work)
        assert_equal(first, expected, ["weights", "optimizer", "events"])
        for other in others:
            assert_equal(other, expected, ["weights"])
            assert other["optimizer"] == {}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.oracle("torch")
def test_every_optimizer_and_pieces_of_parts(name: str) -> None:
    """Batches of 5 pairs: three of the 8 parts, which 3 workers do not divide evenly, are empty."""
    optimizer = OptimizerConfig(name, weight_decay=0.1)
    if OPTIMIZERS[name].whole:
        with pytest.raises(UsageError, match=f"{name} needs whole matrices"):
            replace(IN_PARTS, optimizer=optimizer)
        with pytest.raises(UsageError, match=f"{name} needs whole matrices"):
            ShardedOptimizer({}, optimizer, parts=2)
        return
    config = replace(IN_PARTS, steps=9, accumulate=2, optimizer=optimizer)
    results = [together(n, lambda w: train("seq2seq", config, w, size=5))[0] for n in (1, 3, 8)]
    for found in results[1:]:
        assert_equal(found, results[0], ["weights", "optimizer", "events"])


@pytest.mark.oracle("torch")
def test_buckets_are_sent_before_backward_has_ended_and_change_no_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pellucid.training.optimizers.sharded.BUCKET", BLOCK)

    def work(early: bool, workers: Workers) -> tuple[np.ndarray, list[int]]:
        learner = model().train()
        optimizer = ShardedOptimizer(learner.named_parameters(), parts=8, workers=workers)
        optimizer.early = early
        sent: list[int] = []
        ended = optimizer.end

        def end(part: int, loss: LossSum) -> None:
            ended_before = len(optimizer._received)
            ended(part, loss)
            if part == optimizer.parts[-1]:
                sent.append(ended_before)

        optimizer.end = end  # type: ignore[method-assign]
        for step, batch in enumerate(Reversals(3, 13).epoch(0), 1):
            train_step(learner, optimizer, batch, IN_PARTS, step=step, lr=0.01)
        return optimizer._theta.copy(), sent

    early, late = (together(2, lambda w, e=e: work(e, w)) for e in (True, False))
    for (a, when_early), (b, when_late) in zip(early, late, strict=True):
        np.testing.assert_array_equal(a, b)
        assert when_late == [0, 0, 0]
        assert when_early[-1] > 0


def test_the_result_is_that_of_the_ordinary_step_to_rounding() -> None:
    learner, other = model().train(), model().train()
    batch = Reversals(1, 13).epoch(0)[0]
    free = replace(IN_PARTS, optimizer=OptimizerConfig(clip=float("inf")))
    sharded = ShardedOptimizer(learner.named_parameters(), free.optimizer, parts=8)
    plain = ModelOptimizer(other.named_parameters(), free.optimizer)
    tally, norm = train_step(learner, sharded, batch, free, step=1, lr=1e-3)
    expected, expected_norm = train_step(other, plain, batch, free, step=1, lr=1e-3)
    assert tally.target_tokens == expected.target_tokens
    assert tally.nats == pytest.approx(expected.nats, rel=1e-6)
    assert norm == pytest.approx(expected_norm, rel=1e-6)
    for (name, p), (_, q) in zip(learner.named_parameters(), other.named_parameters(), strict=True):
        given, wanted = p.data, q.data
        if name.endswith("in_proj_bias"):  # those of the keys learn nothing: Adam steps by rounding
            given, wanted = (np.delete(x.reshape(3, -1), 1, axis=0) for x in (given, wanted))
        np.testing.assert_allclose(given, wanted, atol=2e-4, err_msg=name)


@pytest.mark.oracle("torch")
def test_bytes_of_a_step_are_those_of_a_ring() -> None:
    """2 P (n − 1)/n floats a worker, and under 5 % more."""
    numbers, size = 3 * BUCKET + 12_345, 4

    def work(workers: Workers) -> int:
        weight = Parameter((numbers,), zeros)
        optimizer = ShardedOptimizer({"weight": weight}, parts=size, workers=workers)
        before = workers.sent
        for part in optimizer.parts:
            optimizer.begin(part)
            weight.accumulate(np.ones(numbers, np.float32))
            optimizer.end(part, LossSum(1.0, 1))
        optimizer.exchange()
        optimizer.step(1e-3)
        return workers.sent - before

    least = 2 * 4 * numbers * (size - 1) / size
    for sent in together(size, work):
        assert least <= sent < 1.05 * least


@pytest.mark.oracle("torch")
def test_a_state_can_be_taken_over_by_another_number_of_workers() -> None:
    def work(state: dict[str, np.ndarray], workers: Workers) -> dict[str, np.ndarray]:
        learner = model().train()
        optimizer = ShardedOptimizer(learner.named_parameters(), parts=8, workers=workers)
        if state:
            optimizer.load_state_dict(state if workers.rank == 0 else {})
        else:
            batch = Reversals(1, 13).epoch(0)[0]
            train_step(learner, optimizer, batch, IN_PARTS, step=1, lr=0.01)
        return optimizer.state_dict()

    state = together(4, lambda w: work({}, w))[0]
    plain = ModelOptimizer(model().named_parameters())
    plain.load_state_dict(state)  # the format is that of every run
    assert all((state[f"step.{name}"] == 1).all() for name, _ in model().named_parameters())
    for size in (1, 2):
        again = together(size, lambda w: work(state, w))[0]
        assert again.keys() == state.keys()
        for name, array in state.items():
            np.testing.assert_array_equal(again[name], array)


def test_a_state_of_another_model_is_refused() -> None:
    weight = Parameter((3,), zeros)
    optimizer = ShardedOptimizer({"weight": weight}, parts=2)
    with pytest.raises(UserError, match=r"exp_avg.weight: missing"):
        optimizer.load_state_dict({"exp_avg.other": np.zeros(3)})


def test_a_parameter_without_a_gradient_stays_as_it_is() -> None:
    frozen, learnt = Parameter((3,), zeros), Parameter((3,), zeros)
    frozen.data += 1
    config = OptimizerConfig("adamw", weight_decay=0.5)
    optimizer = ShardedOptimizer({"frozen": frozen, "learnt": learnt}, config, parts=2)
    for part in optimizer.parts:
        optimizer.begin(part)
        if part:
            learnt.accumulate(np.ones(3, np.float32))
        optimizer.end(part, LossSum(1.0, 1))
    optimizer.exchange()
    optimizer.step(0.1)
    assert frozen.data.tolist() == [1, 1, 1]
    assert (learnt.data < 0).all()
    assert optimizer.state_dict()["step.frozen"] == 0


def test_fewer_parts_than_workers_are_refused() -> None:
    workers = Workers()
    workers.size = 3
    with pytest.raises(UsageError, match=r"training.parts = 2 is too few for 3 workers"):
        ShardedOptimizer({}, parts=2, workers=workers)


@pytest.mark.oracle("torch")
def test_a_gradient_that_is_not_finite_is_named_on_every_worker() -> None:
    def work(workers: Workers) -> list[str]:
        named = {name: Parameter((2000,), zeros) for name in "abc"}
        optimizer = ShardedOptimizer(named, parts=2, workers=workers)
        for part in optimizer.parts:
            optimizer.begin(part)
            for name, parameter in named.items():
                gradient = np.ones(2000, np.float32)
                gradient[1999] = np.inf if name == "b" and part == 1 else 1
                parameter.accumulate(gradient)
            optimizer.end(part, LossSum(1.0, 1))
        optimizer.exchange()
        assert optimizer.norm() == np.inf
        return optimizer.not_finite()

    for size in (1, 2):
        assert together(size, work) == [["b"]] * size


@pytest.mark.oracle("torch")
def test_more_gradients_than_before_are_an_error_and_not_lost() -> None:
    def work(workers: Workers) -> None:
        weight = Parameter((5,), zeros)
        optimizer = ShardedOptimizer({"weight": weight}, parts=4, workers=workers)
        for part in optimizer.parts:
            optimizer.begin(part)
            for _ in range(1 + (part % 2)):
                weight.accumulate(np.ones(5, np.float32))
            optimizer.end(part, LossSum(1.0, 1))

    errors = together(2, work, failing=True)
    assert any("more gradients in one part" in str(e) for e in errors)


def test_the_norm_is_that_of_all_blocks() -> None:
    x = np.random.default_rng(0).standard_normal(67 * BLOCK, np.float32)
    squares = block_squares(x)
    assert np.sqrt(squares.sum()) == pytest.approx(global_norm([x]), rel=1e-12)
    np.testing.assert_array_equal(block_squares(x[5 * BLOCK : 7 * BLOCK]), squares[5:7])
