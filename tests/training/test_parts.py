"""The same bits on any number of workers; here they are threads that talk through gloo."""

from __future__ import annotations

from collections.abc import Sequence
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
from pellucid.optim import OPTIMIZERS
from pellucid.optim.config import OptimizerConfig
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.step import train_step
from pellucid.training.parts import PartSum, children, own_parts, roots, tree_sum
from pellucid.training.trainer import Trainer
from pellucid.training.workers import Workers

SIZES = [1, 2, 3, 5, 8, 11]


def sum_in_order(values: dict[tuple[int, int], np.ndarray], node: tuple[int, int]) -> np.ndarray:
    """The sum of the docstring's picture, written down a second time."""
    if node[1] - node[0] == 1:
        return values[node]
    left, right = children(node)
    return sum_in_order(values, left) + sum_in_order(values, right)


@pytest.mark.parametrize(
    ("parts", "workers"),
    [(parts, workers) for parts in SIZES for workers in SIZES if workers <= parts],
)
def test_the_sum_of_subtrees_has_the_bits_of_the_whole_tree(parts: int, workers: int) -> None:
    g = np.random.default_rng(parts)
    leaves = {(i, i + 1): g.standard_normal(7, np.float32) for i in range(parts)}
    expected = sum_in_order(leaves, (0, parts))
    sums: dict[tuple[int, int], np.ndarray] = {}
    seen: list[int] = []
    for rank in range(workers):
        own = own_parts(parts, workers, rank)
        seen += own
        for node in roots((0, parts), own.start, own.stop):
            sums[node] = sum_in_order(leaves, node)
    assert seen == list(range(parts))
    np.testing.assert_array_equal(tree_sum(sums, (0, parts)), expected)


def test_the_order_of_the_tree_shows_in_the_bits() -> None:
    g = np.random.default_rng(0)
    leaves = {(i, i + 1): g.standard_normal(999, np.float32) for i in range(8)}
    in_order = np.sum(np.stack(list(leaves.values())), axis=0, dtype=np.float32)
    assert (tree_sum(leaves, (0, 8)) != in_order).any()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.oracle("torch")
def test_gradients_are_added_in_the_order_of_the_tree(size: int) -> None:
    """Of parameters that get gradients in all parts, in one, and in none."""
    leaves = np.random.default_rng(0).standard_normal((11, 37)).astype(np.float32)
    expected = sum_in_order({(i, i + 1): row for i, row in enumerate(leaves)}, (0, 11))

    def work(workers: Workers) -> None:
        all_, one, none = (Parameter(shape, zeros) for shape in ((37,), (2, 3), (5,)))
        named = [("all", all_), ("one", one), ("none", none)]
        total = PartSum(named, parts=11, workers=workers)
        for _ in range(2):  # nothing of a step is left for the next one
            for _, parameter in named:
                parameter.grad = None

            def run_part(part: int) -> LossSum:
                for half in np.split(leaves[part], [20]):
                    gradient = np.zeros(37, np.float32)
                    gradient[slice(0, 20) if len(half) == 20 else slice(20, 37)] = half
                    all_.accumulate(gradient)
                if part == 4:
                    one.accumulate(np.full((2, 3), 7, np.float32))
                return LossSum(part + 0.1, part)

            losses = total.run(run_part)
            assert losses == [LossSum(part + 0.1, part) for part in range(11)]
            np.testing.assert_array_equal(all_.grad, expected)
            assert (one.grad == 7).all()
            assert none.grad is None

    together(size, work)


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
            assert_equal(other, expected, ["weights", "optimizer"])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.oracle("torch")
def test_every_optimizer_and_pieces_of_parts(name: str) -> None:
    """Batches of 5 pairs: three of the 8 parts, which 3 workers do not divide evenly, are empty."""
    optimizer = OptimizerConfig(name, weight_decay=0.1)
    config = replace(IN_PARTS, steps=9, accumulate=2, optimizer=optimizer)
    results = [together(n, lambda w: train("seq2seq", config, w, size=5))[0] for n in (1, 3, 8)]
    for found in results[1:]:
        assert_equal(found, results[0], ["weights", "optimizer", "events"])


def test_the_result_is_that_of_the_ordinary_step_to_rounding() -> None:
    learner, other = model().train(), model().train()
    batch = Reversals(1, 13).epoch(0)[0]
    free = replace(IN_PARTS, optimizer=OptimizerConfig(clip=float("inf")))
    in_parts, plain = (
        ModelOptimizer(m.named_parameters(), free.optimizer) for m in (learner, other)
    )
    part_sum = PartSum(learner.named_parameters(), parts=8)
    tally, norm = train_step(learner, in_parts, batch, free, step=1, lr=1e-3, part_sum=part_sum)
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
    numbers, size = 100_345, 4

    def work(workers: Workers) -> int:
        weight = Parameter((numbers,), zeros)
        part_sum = PartSum([("weight", weight)], parts=size, workers=workers)
        all_to_all, all_gather, sent = workers.all_to_all, workers.all_gather, [0]

        def counted_all_to_all(send: np.ndarray, got: Sequence[int]) -> np.ndarray:
            sent[0] += (size - 1) * (len(send) // size) * send.itemsize
            return all_to_all(send, got)

        def counted_all_gather(own: np.ndarray) -> np.ndarray:
            sent[0] += (size - 1) * own.nbytes
            return all_gather(own)

        workers.all_to_all = counted_all_to_all  # type: ignore[method-assign]
        workers.all_gather = counted_all_gather  # type: ignore[assignment, method-assign]

        def run_part(part: int) -> LossSum:
            weight.accumulate(np.ones(numbers, np.float32))
            return LossSum(1.0, 1)

        part_sum.run(run_part)
        return sent[0]

    least = 2 * 4 * numbers * (size - 1) / size
    for sent in together(size, work):
        assert least <= sent < 1.05 * least


@pytest.mark.oracle("torch")
def test_workers_take_over_the_first_ones_weights_and_do_not_drift_apart() -> None:
    """As another processor would: the last bits of the second worker's weights differ."""

    def work(workers: Workers) -> dict[str, Any]:
        learner = model()
        for parameter in learner.parameters():
            parameter.data += workers.rank
        trainer = Trainer(learner, Reversals(3, 13), replace(IN_PARTS, steps=3), workers=workers)
        step = trainer._step

        def drifting(request: Any) -> str:
            learner.output.bias.data *= np.float32(1 + workers.rank * 1e-7)
            return step(request)

        trainer._step = drifting  # type: ignore[method-assign]
        trainer.fit()
        trainer._save()
        return {"weights": learner.state_dict(), "optimizer": trainer.optimizer.state_dict()}

    first, second = together(2, work)
    assert_equal(second, first, ["weights", "optimizer"])


def test_fewer_parts_than_workers_are_refused() -> None:
    workers = Workers()
    workers.size = 3
    with pytest.raises(UsageError, match=r"training.parts = 2 is too few for 3 workers"):
        PartSum([], parts=2, workers=workers)


def test_parameters_of_two_dtypes_are_refused() -> None:
    named = [("a", Parameter((3,), zeros)), ("b", Parameter((3,), zeros, np.float64))]
    with pytest.raises(UserError, match="one dtype; got float32, float64"):
        PartSum(named, parts=2)


@pytest.mark.oracle("torch")
def test_a_gradient_that_is_not_finite_is_named_on_every_worker() -> None:
    def work(workers: Workers) -> list[str]:
        named = {name: Parameter((2000,), zeros) for name in "abc"}
        optimizer = ModelOptimizer(named)

        def run_part(part: int) -> LossSum:
            for name, parameter in named.items():
                gradient = np.ones(2000, np.float32)
                gradient[1999] = np.inf if name == "b" and part == 1 else 1
                parameter.accumulate(gradient)
            return LossSum(1.0, 1)

        PartSum(named.items(), parts=2, workers=workers).run(run_part)
        assert optimizer.norm() == np.inf
        return optimizer.not_finite()

    for size in (1, 2):
        assert together(size, work) == [["b"]] * size
