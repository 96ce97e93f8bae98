"""Streams of batches: what counts as useful, and that both sides see all of it."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import useful_tokens
from benchmarks.machine import in_turn
from benchmarks.useful_tokens import Task, pellucid_way, stretch, torch_way

from pellucid.core.batch import Packed
from pellucid.data.batches import Examples
from pellucid.models import Seq2SeqConfig

CONFIG = Seq2SeqConfig(
    17, 17, d_model=8, num_attention_heads=2, encoder_layers=1, decoder_layers=1, ffn_dim=7,
    positions="learned", max_position_embeddings=12, dropout=0.1,
)  # fmt: skip
SOURCES, TARGETS = (3, 1, 7, 5, 2), (4, 9, 2, 6, 3)
USEFUL = sum(SOURCES) + sum(TARGETS) - len(TARGETS)


@pytest.fixture
def task() -> Task:
    draw = np.random.default_rng(0).integers
    source, target = ([list(draw(3, 17, n)) for n in sizes] for sizes in (SOURCES, TARGETS))
    return Task("tiny", Examples(Packed.of(source), Packed.of(target), 0), CONFIG, 19, 2)


def epoch(step: object, steps: int) -> int:
    assert callable(step)
    return sum(step() for _ in range(steps))


def test_an_epoch_of_ours_has_every_useful_token_once(task: Task) -> None:
    batches = len(useful_tokens.Batches(task.examples, seed=0, batch_tokens=19).epoch(0))
    assert batches > 1
    assert epoch(pellucid_way(task), batches) == USEFUL


@pytest.mark.parametrize("padded_to", [None, 11], ids=["bucketed", "padded"])
@pytest.mark.oracle("torch")
def test_so_has_an_epoch_of_the_peer(task: Task, padded_to: int | None) -> None:
    assert epoch(torch_way(task, padded_to), 3) == USEFUL


def test_a_stretch_counts_what_was_done_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 1.0, 2.5])
    monkeypatch.setattr(useful_tokens.time, "perf_counter", lambda: next(clock))
    assert stretch(lambda: 10, 2.0) == 20 / 2.5


def test_calls_take_turns() -> None:
    heard: list[str] = []
    seconds = in_turn([lambda: heard.append("a"), lambda: heard.append("b")], 3)
    assert heard == ["a", "b"] * 3
    assert seconds.shape == (2, 3)
    assert np.all(seconds >= 0)
