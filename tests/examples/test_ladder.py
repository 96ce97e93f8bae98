"""The ladder: every rung's backward is right, and each rung learns what the one before cannot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def ladder() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        import ladder

        yield ladder


@pytest.mark.parametrize("name", ["votes", "one_head", "one_layer"])
def test_a_rungs_gradients_are_those_of_differences(
    ladder: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = getattr(ladder, name)
    drawn = ladder.initial
    monkeypatch.setattr(ladder, "initial", lambda random: drawn(random, np.float64))
    p = ladder.parameters(np.random.default_rng(3), model)
    source, target = ladder.batch([456_788, 60_000, 11])
    _, g = ladder.loss_and_gradients(p, source, target, model)
    random = np.random.default_rng(5)
    direction = [random.standard_normal(w.shape) for w in ladder.arrays(p)]
    slope, losses = sum(map(np.vdot, ladder.arrays(g), direction)), []
    for h in (1e-6, -2e-6):
        for w, d in zip(ladder.arrays(p), direction, strict=True):
            w += h * d
        losses.append(ladder.loss_and_gradients(p, source, target, model)[0])
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rung_does_what_the_one_before_cannot(
    ladder: ModuleType, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the loss on new numbers, after 200 steps; attention is the largest of them."""
    monkeypatch.setattr(ladder, "STEPS", 200)
    numbers = np.random.default_rng(seed).integers(1, 1_000_000, 4000)
    new = np.unique(numbers[numbers % 7 == 3])[:101]
    losses = [
        ladder.climb(rung, numbers[numbers % 7 != 3], new, seed)[0] for rung in ladder.RUNGS[:4]
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[1] - losses[2] > losses[0] - losses[1]
