"""Continuous batching: every answer is the one that its input gets alone."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tests.apps.serve.servers import apart

from pellucid import reference
from pellucid.apps.serve.batcher import SPLIT, Batcher, Job, Waiting, batchers_for
from pellucid.apps.serve.worker import Worker
from pellucid.core.batch import Packed
from pellucid.generation import (
    Constraints,
    SampleConfig,
    SearchConfig,
    compile_model,
    sample,
    search,
)
from pellucid.kernels.backend import threads
from pellucid.models import CausalLM, CausalLMConfig, Seq2Seq, Seq2SeqConfig
from pellucid.tasks.causal_lm import without_last

V = 37
SHAPE = {"d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 43}


def shaken(model: Any) -> Any:
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.1 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model.eval()


def answering() -> Any:
    config = Seq2SeqConfig(**{**SHAPE, "source_vocab_size": V, "target_vocab_size": V})
    return compile_model(shaken(Seq2Seq(config, seed=3)))


def continuing() -> Any:
    return compile_model(shaken(CausalLM(CausalLMConfig(**SHAPE, vocab_size=V), 3)))


CONFIGS = (
    SearchConfig(max_length=19),
    SampleConfig(max_length=17, seed=5, temperature=1.3, top_k=11),
    SearchConfig(beam=3, max_length=13),
    SearchConfig(beam=4, best=2, max_length=11, length_penalty=0.0),
    SearchConfig(max_length=13, constraints=Constraints(no_repeat_ngram=2)),
    SampleConfig(max_length=7, seed=6, top_p=0.7, constraints=Constraints(1.2)),
)


def jobs(n: int, **settings: Any) -> list[Job]:
    draw = np.random.default_rng(1)
    return [
        Job(
            draw.integers(3, V, int(draw.integers(1, 23))).tolist(),
            CONFIGS[i % len(CONFIGS)],
            lambda job: None,
            number=i,
            **settings,
        )
        for i in range(n)
    ]


def alone(decoder: Any, job: Job) -> tuple[int, ...]:
    source, first = Packed.of([job.opening], [job.number]), None
    if isinstance(decoder.config, CausalLMConfig):
        source, first = without_last(source)
    if isinstance(job.config, SampleConfig):
        return sample(decoder, source, job.config, first=first)[0]
    return search(decoder, source, job.config, first=first)[0][0].tokens


@pytest.mark.parametrize("make", [answering, continuing])
def test_jobs_that_join_at_any_round_get_the_answer_they_get_alone(make: Any) -> None:
    decoder, every, draw = make(), jobs(61), np.random.default_rng(7)
    batcher, left = Batcher(decoder, rows=32, continues=make is continuing), [*every]
    while left or not batcher.idle:
        for _ in range(int(draw.integers(0, 4))):
            if left:
                batcher.add(left.pop())
        batcher.round()
        assert batcher.running <= 32
    assert all(job.done and job.error is None for job in every)
    for job in every:
        assert tuple(job.answer) == alone(decoder, job), job.config


def test_a_model_that_is_not_compiled_answers_each_job_as_alone() -> None:
    with reference():
        decoder, every = answering(), jobs(7)
        batcher = Batcher(decoder)
        for job in every:
            batcher.add(job)
        while not batcher.idle:
            batcher.round()
        assert [tuple(job.answer) for job in every] == [alone(decoder, job) for job in every]


def test_the_state_stays_as_small_as_what_runs() -> None:
    batcher = Batcher(answering(), rows=16)
    largest = 0
    for job in jobs(300):
        batcher.add(job)
    while not batcher.idle:
        batcher.round()
        for group in batcher.groups:
            largest = max(largest, group.state.cache.used, group.state.memory.used)
        for one in batcher.searches.values():
            largest = max(largest, one.answering.keys.used, one.answering.memory.used)
    assert largest < 1200  # without leaving rows out: over 3700


def test_a_cancelled_job_leaves_before_the_next_token_and_others_do_not_notice() -> None:
    decoder = answering()
    batcher, every = Batcher(decoder), jobs(7)
    for job in every:
        batcher.add(job)
    batcher.round()
    going = [job for job in every if not job.done]
    gone = going[0]
    before = len(gone.answer)
    gone.cancelled = True
    while not batcher.idle:
        batcher.round()
    assert gone.done
    assert len(gone.answer) == before
    for job in every:
        if job is not gone:
            assert tuple(job.answer) == alone(decoder, job)


def test_a_job_cancelled_while_it_waits_is_never_read() -> None:
    batcher, (job,) = Batcher(answering()), jobs(1)
    job.cancelled = True
    batcher.add(job)
    assert batcher.round() == 0
    assert job.done
    assert batcher.idle


def test_an_error_ends_the_jobs_of_its_group_only() -> None:
    batcher, every = Batcher(answering()), jobs(3)
    batcher.add(every[0])
    batcher.round()
    every[1].opening = [V + 5]
    batcher.add(every[1])
    while not batcher.idle:
        batcher.round()
    assert isinstance(every[1].error, IndexError)
    assert every[0].error is None
    assert tuple(every[0].answer) == alone(batcher.decoder, every[0])


def test_an_opening_that_fills_the_positions_has_an_empty_answer() -> None:
    batcher = Batcher(continuing(), continues=True)
    job = Job([5] * 43, SearchConfig(), lambda job: None)
    batcher.add(job)
    batcher.round()
    assert (job.done, job.answer, job.finished, job.error) == (True, [], False, None)


def test_clients_take_turns() -> None:
    waiting = Waiting()
    for name in ["many"] * 5 + ["few"] * 2:
        waiting.add(Job([5], SearchConfig(), lambda job: None, client=name))
    order = []
    while (job := waiting.next()) is not None:
        waiting.take(job)
        order.append(job.client)
    assert order == ["many", "few", "many", "few", "many", "many", "many"]


def test_a_newcomer_runs_before_the_next_job_of_a_client_that_has_some_running() -> None:
    batcher = Batcher(answering(), rows=2)
    busy = jobs(9, client="busy")
    for job in busy:
        batcher.add(job)
    batcher.round()
    newcomer = Job([5, 6], SearchConfig(max_length=1), lambda job: None, client="new")
    batcher.add(newcomer)
    waited = 0
    while not newcomer.done:
        started = sum(bool(job.answer or job.done) for job in busy)
        batcher.round()
        waited += 1
    assert started < len(busy)
    assert waited <= 20


def test_a_second_thread_shares_the_work_once_the_first_has_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "available", lambda: 3)
    decoder = answering()
    batchers, worker = batchers_for(decoder, rows=32), Worker()
    assert [batcher.rows for batcher in batchers] == [11, 11, 11]

    async def ask() -> list[Job]:
        changed, asked = asyncio.Event(), jobs(29)
        for job in asked:
            worker.submit(batchers, job, changed)
        assert batchers[0].load >= SPLIT
        assert max(one.load for one in batchers) - min(one.load for one in batchers) <= SPLIT
        worker.start()
        while not all(job.done for job in asked):
            await asyncio.wait_for(changed.wait(), 60)
            changed.clear()
        worker.stop()
        return asked

    for job in apart(ask()):
        assert tuple(job.answer) == alone(decoder, job)


def test_a_model_that_is_not_compiled_has_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available", lambda: 3)
    with reference():
        batchers = batchers_for(shaken(Seq2Seq(Seq2SeqConfig(V, V, **SHAPE), seed=3)))
    assert len(batchers) == 1
