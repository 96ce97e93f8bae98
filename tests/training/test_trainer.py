from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from tests.training.copying import TRAIN, Reversals, held_out, model, settings

from pellucid.core.batch import Batch
from pellucid.core.errors import UsageError, UserError
from pellucid.models import Seq2Seq
from pellucid.optim.config import ScheduleConfig
from pellucid.optim.step import DivergedError
from pellucid.system.weights import average, read_weights
from pellucid.tasks.scores import held_out_loss
from pellucid.training.config import TrainingConfig
from pellucid.training.events import (
    RECORDED,
    Chosen,
    Ended,
    EpochEnded,
    Event,
    Interrupted,
    Saved,
    Started,
    Stepped,
    Trained,
    Validated,
)
from pellucid.training.run import RunFolder
from pellucid.training.trainer import Trainer

SHORT = replace(TRAIN, steps=20, checkpoint_every=None)


def fit(config: TrainingConfig, run: RunFolder | None = None, **options: object):
    events: list[Event] = []
    learner = model()
    options.setdefault("validation", held_out())
    trainer = Trainer(learner, Reversals(), config, run=run, listeners=[events.append], **options)
    return trainer.fit(), events, learner


def only(events: Sequence[Event], kind: type) -> list:
    return [e for e in events if isinstance(e, kind)]


def test_it_learns() -> None:
    config = replace(TRAIN, steps=150, validate_every=150, label_smoothing=0.0)
    before = held_out_loss(model(), held_out())
    result, _, learner = fit(config)
    assert result.reason == "150 steps"
    assert held_out_loss(learner, held_out()) < 0.8 * before
    assert not learner.training


def test_events_of_a_run() -> None:
    _, events, _ = fit(SHORT)
    assert isinstance(events[0], Started)
    assert events[0].parameters == sum(p.data.size for p in model().parameters())
    assert [e.step for e in only(events, Stepped)] == list(range(1, 21))
    assert [e.step for e in only(events, Trained)] == [3, 6, 9, 12, 15, 18, 20]
    assert [e.step for e in only(events, Validated)] == [10, 20]
    assert [(e.step, e.epoch) for e in only(events, EpochEnded)] == [(13, 1.0)]
    assert [type(e) for e in events[-2:]] == [Ended, Chosen]
    assert events[-3].step == 20
    assert only(events, Stepped)[9].share == 0.5


def test_records_are_means_over_their_steps() -> None:
    _, events, _ = fit(replace(SHORT, log_every=13, label_smoothing=0.0))
    tokens = [sum(len(b.target.tokens) - len(b) for b in [x]) for x in Reversals().epoch(0)]
    steps = [e.loss for e in only(events, Stepped)[:13]]
    expected = np.average(steps, weights=tokens)
    record, epoch = only(events, Trained)[0], only(events, EpochEnded)[0]
    assert record.loss == pytest.approx(expected, rel=1e-12)
    assert (epoch.loss, epoch.loss_per_sentence) == (record.loss, record.loss_per_sentence)
    assert record.loss_per_sentence == pytest.approx(expected * sum(tokens) / (13 * 7), rel=1e-12)
    assert record.tokens == sum(b.useful_tokens for b in Reversals().epoch(0))
    assert record.learning_rate == SHORT.schedule.at(13, total=20)


def test_epochs_end_a_run_and_drive_its_schedule() -> None:
    config = replace(SHORT, steps=None, epochs=2, validate_unit="epochs", validate_every=1)
    result, events, _ = fit(replace(config, log_every=1))
    assert (result.reason, result.step) == ("2 epochs", 26)
    assert [e.step for e in only(events, Validated)] == [13, 26]
    rates = [e.learning_rate for e in only(events, Trained)]
    expected = [config.schedule.at(step, total=26) for step in range(1, 27)]
    np.testing.assert_allclose(rates, expected, rtol=1e-9)


def test_minutes_end_a_run_and_drive_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100.0, 0.25)  # a clock that moves when it is looked at
    monkeypatch.setattr("pellucid.training.trainer.time.monotonic", lambda: next(clock))
    config = replace(SHORT, steps=None, minutes=2.0, log_every=1, validate_every=10_000)
    result, events, _ = fit(config)
    assert result.reason == "2 minutes"
    rates = [e.learning_rate for e in only(events, Trained)]
    assert max(rates) > 0.9 * config.schedule.lr
    assert 0 < rates[-1] < 0.01 * config.schedule.lr
    stepped = only(events, Stepped)
    assert [e.share for e in stepped] == sorted(e.share for e in stepped)
    assert stepped[-1].share > 0.98
    assert stepped[-1].seconds_left < 3.0


def test_no_time_is_left_before_a_pace_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pellucid.training.trainer.time.monotonic", lambda: now[0])
    seen: list[float | None] = []

    def tick(event: Event) -> None:
        if isinstance(event, Stepped):  # the first two steps compile: 60 seconds each
            seen.append(event.seconds_left)
            now[0] += 60.0 if event.step < 3 else 1.0

    Trainer(model(), Reversals(), replace(SHORT, steps=12), listeners=[tick]).fit()
    assert seen == [None] * 5 + [pytest.approx(12.0 - step) for step in range(6, 13)]


def test_no_time_is_left_just_after_a_resume_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("pellucid.training.trainer.time.monotonic", lambda: now[0])
    seen: list[float | None] = []

    def tick(event: Event) -> None:
        if isinstance(event, Stepped):  # the first step of each process compiles
            seen.append(event.seconds_left)
            now[0] += 60.0 if len(seen) == 1 else 2.0

    config = replace(SHORT, steps=5)
    for steps in (5, 15):
        longer, seen[:] = replace(config, steps=steps), []
        with RunFolder(
            tmp_path, settings(longer), resume=steps > 5, accept_changes=steps > 5
        ) as run:
            Trainer(model(), Reversals(), longer, run=run, listeners=[tick]).fit()
    assert seen == [None] * 4 + [pytest.approx(2.0 * (15 - step)) for step in range(10, 16)]


def test_the_papers_schedule_takes_the_models_width() -> None:
    config = replace(SHORT, schedule=ScheduleConfig("paper", warmup=10), log_every=1)
    _, events, _ = fit(config)
    assert only(events, Trained)[4].learning_rate == pytest.approx(12**-0.5 * 5 * 10**-1.5)


def test_early_stopping_and_the_best() -> None:
    scores = iter([0.5, 0.3, 0.4, 0.3, 0.6, 0.1])
    config = replace(SHORT, validate_every=2, monitor="rate", patience=3)
    result, events, _ = fit(config, metric=lambda _: {"rate": next(scores)})
    assert result.reason == "no better rate in 3 validations"
    assert (result.step, result.best_step, result.best_score) == (10, 4, 0.3)
    assert [e.best for e in only(events, Validated)] == [True, True, False, False, False]


def test_a_validation_says_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(100.0, 0.25)  # a clock that moves when it is looked at
    monkeypatch.setattr("pellucid.training.trainer.time.monotonic", lambda: next(clock))
    _, events, _ = fit(SHORT)
    assert [e.seconds for e in only(events, Validated)] == [0.25, 0.25]


def test_higher_can_be_better() -> None:
    scores = iter([0.5, 0.7, 0.4])
    config = replace(SHORT, steps=6, validate_every=2, monitor="bleu", higher_is_better=True)
    result, _, _ = fit(config, metric=lambda _: {"bleu": next(scores)})
    assert (result.best_step, result.best_score) == (4, 0.7)


def test_the_best_bleu_is_the_highest_without_a_setting() -> None:
    scores = iter([0.5, 0.7, 0.4])
    config = replace(SHORT, steps=6, validate_every=2, monitor="bleu")
    result, _, _ = fit(config, metric=lambda _: {"bleu": next(scores)})
    assert (result.best_step, result.best_score) == (4, 0.7)


def test_the_metric_sees_eval_mode_and_training_goes_on_in_train_mode() -> None:
    modes: list[bool] = []

    def metric(learner) -> dict[str, float]:
        modes.append(learner.training)
        return {}

    learner = model()
    loss = learner.loss
    trained: list[bool] = []
    learner.loss = lambda *args, **more: trained.append(learner.training) or loss(*args, **more)
    Trainer(learner, Reversals(), SHORT, metric=metric, validation=held_out()).fit()
    assert modes == [False, False]
    assert trained.count(True) == 20
    assert trained.count(False) == 2 * len(held_out())


@pytest.mark.parametrize("log_every", [1, 1000])
def test_a_learning_rate_that_diverges_is_one_clear_error(log_every: int) -> None:
    config = replace(TRAIN, schedule=ScheduleConfig(lr=100.0), log_every=log_every)
    with np.errstate(all="ignore"), pytest.raises(DivergedError) as error:
        fit(config)
    assert "rose from" in str(error.value)
    assert "learning rate 100" in str(error.value)


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    config = replace(SHORT, steps=1, schedule=ScheduleConfig(lr=3e38))
    with (
        np.errstate(all="ignore"),
        pytest.raises(DivergedError, match=r"step 1 .*holds values that are not finite"),
        RunFolder(tmp_path / "run", settings(config)) as run,
    ):
        Trainer(model(), Reversals(), config, run=run).fit()
    assert names(tmp_path / "run") == []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_held_out_score_that_is_not_finite_ends_a_run_and_is_not_the_best(
    bad: float, tmp_path: Path
) -> None:
    scores = iter([0.5, bad])
    config = replace(SHORT, validate_every=2, monitor="rate")
    with pytest.raises(DivergedError, match=r"step 4 .*a held-out score is not finite .*'rate'"):
        run_and_fit(tmp_path / "run", config, metric=lambda _: {"rate": next(scores)})
    assert names(tmp_path / "run") == ["step-00000002"]


def test_one_bad_batch_does_not_end_a_run() -> None:
    learner = model()
    loss, steps = learner.loss, count(1)

    def with_a_spike(*args, **more):
        total, backward = loss(*args, **more)
        spike = 60.0 if learner.training and next(steps) == 9 else 0.0
        return total._replace(nats=total.nats + spike * total.tokens), backward

    learner.loss = with_a_spike
    assert Trainer(learner, Reversals(), SHORT).fit().step == 20


@pytest.mark.parametrize(
    ("changes", "options", "reported"),
    [
        ({"steps": None}, {}, "steps, epochs or minutes"),
        ({}, {"validation": (), "metric": lambda _: {"x": 1.0}}, "monitor"),
        ({"monitor": "per"}, {"metric": lambda _: {"wer": 1.0}}, "'per'.*loss, wer"),
        ({"higher_is_better": True}, {}, "'loss'.*lower"),
    ],
)
def test_wrong_use(changes: dict, options: dict, reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        fit(replace(SHORT, **changes), **options)


def test_a_score_that_will_not_be_there_is_refused_before_training() -> None:
    config = replace(SHORT, monitor="per")
    with pytest.raises(UsageError, match=r"'per'.*there is loss.*metric = 'error_rates' gives it"):
        Trainer(model(), Reversals(), config, validation=held_out())


def test_nothing_to_train_on() -> None:
    with pytest.raises(UsageError, match="no batches"):
        Trainer(model(), Reversals(0), SHORT)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_run_twice_is_the_same(seed: int) -> None:
    (_, _, a), (_, _, b) = (fit(replace(SHORT, seed=seed)) for _ in range(2))
    for name, array in a.state_dict().items():
        np.testing.assert_array_equal(array, b.state_dict()[name])


# With a run folder


def run_and_fit(folder: Path, config: TrainingConfig, **options: object):
    with RunFolder(folder, settings(config)) as run:
        return fit(config, run, **options)


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "checkpoints").iterdir())


def test_checkpoints_kept_are_the_last_and_the_best(tmp_path: Path) -> None:
    scores = iter([0.5, 0.3, 0.4, 0.6, 0.7, 0.8])
    config = replace(SHORT, steps=12, validate_every=2, monitor="rate", keep=2)
    _, events, learner = run_and_fit(
        tmp_path / "run", config, metric=lambda _: {"rate": next(scores)}
    )
    assert names(tmp_path / "run") == ["step-00000004", "step-00000010", "step-00000012"]
    assert only(events, Chosen)[0].steps == (4,)
    best = read_weights(tmp_path / "run/checkpoints/step-00000004/model.safetensors")
    for name, array in learner.state_dict().items():
        np.testing.assert_array_equal(array, best[name])
    assert [e.step for e in only(events, Saved)] == [2, 4, 6, 8, 10, 12]


def test_the_average_of_the_last(tmp_path: Path) -> None:
    config = replace(SHORT, steps=12, validate_every=3, use="average", average=3, keep=1)
    _, events, learner = run_and_fit(tmp_path / "run", config)
    chosen = only(events, Chosen)[0]
    assert chosen.steps == (6, 9, 12)
    paths = [tmp_path / f"run/checkpoints/step-{s:08d}/model.safetensors" for s in chosen.steps]
    for name, array in average([read_weights(p) for p in paths]).items():
        np.testing.assert_array_equal(learner.state_dict()[name], array)
    assert chosen.loss == held_out_loss(learner, held_out())


def test_the_moving_average_is_what_is_scored_and_chosen(tmp_path: Path) -> None:
    config = replace(SHORT, validate_every=5, use="ema", ema=0.8, monitor="rate", keep=1)
    learner, folder, scores = model(), tmp_path / "run", iter([0.4, 0.2, 0.3, 0.5])
    expected = {name: p.data.astype(np.float64) for name, p in learner.named_parameters()}
    seen: list[dict[str, np.ndarray]] = []

    def follow(event: Event) -> None:
        if isinstance(event, Stepped):
            decay = min(0.8, (1 + event.step) / (10 + event.step))
            for name, parameter in learner.named_parameters():
                expected[name] = decay * expected[name] + (1 - decay) * parameter.data

    def metric(scored: Seq2Seq) -> dict[str, float]:
        seen.append({name: p.data.copy() for name, p in scored.named_parameters()})
        for name, x in expected.items():
            np.testing.assert_allclose(seen[-1][name], x, atol=1e-6)
        return {"rate": next(scores)}

    with RunFolder(folder, settings(config)) as run:
        events: list[Event] = []
        Trainer(
            learner, Reversals(), config, run=run, metric=metric, listeners=[follow, events.append]
        ).fit()
    assert (only(events, Chosen)[0].weights, only(events, Chosen)[0].steps) == ("ema", (10,))
    saved = folder / "checkpoints/step-00000010"
    for file, equal in (("ema.safetensors", True), ("model.safetensors", False)):
        read = read_weights(saved / file)
        for name, array in seen[1].items():
            assert np.array_equal(read[name], array) == equal, (file, name)
            assert np.array_equal(learner.state_dict()[name], array)


def test_the_moving_average_changes_no_step() -> None:
    config = replace(SHORT, steps=9, validate_every=3)
    plain, averaged = (fit(replace(config, use=use))[1] for use in ("last", "ema"))
    losses = [[e.loss for e in only(events, Stepped)] for events in (plain, averaged)]
    assert losses[0] == losses[1]
    # What is validated is another model in between.
    scored = [[e.loss for e in only(events, Validated)] for events in (plain, averaged)]
    assert len(scored[0]) == len(scored[1]) == 3
    assert not set(scored[0]) & set(scored[1])


def test_a_run_resumed_with_another_kind_of_weights_forgets_its_best(tmp_path: Path) -> None:
    """The scores of weights and of their averages are not compared."""
    folder, config = tmp_path / "run", replace(SHORT, steps=4, validate_every=2, monitor="rate")
    scores = iter([0.1, 0.2, 0.3])
    for use, steps, best in (("best", 4, (2,)), ("ema", 6, (6,)), ("best", 6, (6,))):
        config = replace(config, steps=steps, use=use)
        resume = folder.exists()
        with RunFolder(folder, settings(config), resume=resume, accept_changes=resume) as run:
            _, events, _ = fit(config, run, metric=lambda _: {"rate": next(scores)})
        assert only(events, Chosen)[0].steps == best


def test_last_means_last(tmp_path: Path) -> None:
    scores = iter([0.1, 0.2])
    config = replace(SHORT, monitor="rate", use="last")
    _, _, learner = run_and_fit(tmp_path / "run", config, metric=lambda _: {"rate": next(scores)})
    last = read_weights(tmp_path / "run/checkpoints/step-00000020/model.safetensors")
    for name, array in learner.state_dict().items():
        np.testing.assert_array_equal(array, last[name])


def test_a_missing_best_is_named(tmp_path: Path) -> None:
    folder, scores = tmp_path / "run", iter([0.1, 0.2])

    def lose(event: Event) -> None:
        if isinstance(event, Ended):
            (folder / "checkpoints/step-00000010/model.safetensors").unlink()

    config = replace(SHORT, monitor="rate")
    with (
        RunFolder(folder, settings(config)) as run,
        pytest.raises(UserError, match="step-00000010"),
    ):
        Trainer(
            model(),
            Reversals(),
            config,
            validation=held_out(),
            metric=lambda _: {"rate": next(scores)},
            run=run,
            listeners=[lose],
        ).fit()


def test_metrics_are_the_events(tmp_path: Path) -> None:
    _, events, _ = run_and_fit(tmp_path / "run", SHORT)
    lines = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    recorded = [e for e in events if isinstance(e, RECORDED)]
    assert [r["step"] for r in records] == [e.step for e in recorded]
    first = records[0]
    assert first["event"] == "trained"
    assert first["loss"] == recorded[0].loss


def test_a_finished_run_resumed_is_finished(tmp_path: Path) -> None:
    run_and_fit(tmp_path / "run", SHORT)
    before = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    with RunFolder(tmp_path / "run", settings(SHORT), resume=True) as run:
        result, events, _ = fit(SHORT, run)
    assert result.reason == "20 steps"
    assert not only(events, Stepped)
    after = (tmp_path / "run/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(after) == len(before)


def test_a_checkpoint_that_a_kill_left_over_goes_when_training_is_over(tmp_path: Path) -> None:
    folder, config = tmp_path / "run", replace(SHORT, steps=7, validate_every=5, keep=1)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    def listen(event: Event) -> None:
        if event.step == 6:
            patch.setattr("pellucid.training.checkpoint.keep_checkpoints", die)

    with (
        pytest.MonkeyPatch.context() as patch,
        pytest.raises(KeyboardInterrupt),
        RunFolder(folder, settings(config)) as run,
    ):
        Trainer(model(), Reversals(), config, run=run, listeners=[listen]).fit()
    assert names(folder) == ["step-00000005", "step-00000007"]
    with RunFolder(folder, settings(config), resume=True) as run:
        assert Trainer(model(), Reversals(), config, run=run).fit().step == 7
    assert names(folder) == ["step-00000007"]


def test_a_finished_run_can_be_given_more_to_do(tmp_path: Path) -> None:
    run_and_fit(tmp_path / "run", SHORT)
    longer = replace(SHORT, steps=30)
    with RunFolder(tmp_path / "run", settings(longer), resume=True, accept_changes=True) as run:
        result, events, _ = fit(longer, run)
    assert result.reason == "30 steps"
    assert [e.step for e in only(events, Stepped)] == list(range(21, 31))


def test_a_longer_resume_says_where_the_learning_rate_jumps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cosine of 20 steps has fallen to nothing where one of 40 is half-way."""
    run_and_fit(tmp_path / "run", SHORT)
    assert not caplog.text
    longer = replace(SHORT, steps=40)
    with RunFolder(tmp_path / "run", settings(longer), resume=True, accept_changes=True) as run:
        fit(longer, run)
    was, now = (x.schedule.at(20, total=x.steps or 0) for x in (SHORT, longer))
    assert f"at step 20 the learning rate was {was:.2g}; by the settings now it is {now:.2g}" in (
        caplog.text
    )


def test_a_run_shorter_than_its_warm_up_says_so(caplog: pytest.LogCaptureFixture) -> None:
    late = ScheduleConfig("cosine", lr=1e-2, warmup=100)
    fit(replace(SHORT, schedule=late))
    assert (
        "the warm-up takes 100 steps and the run 20: the learning rate gets to 0.2" in caplog.text
    )
    caplog.clear()
    fit(replace(SHORT, steps=None, epochs=2, schedule=late))  # of 13 batches
    assert "the warm-up takes 100 steps and the run 26:" in caplog.text
    caplog.clear()
    fit(replace(SHORT, schedule=replace(late, warmup=19)))
    assert not caplog.text


def test_a_run_that_the_clock_ends_inside_its_warm_up_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = count(100.0, 0.25)
    monkeypatch.setattr("pellucid.training.trainer.time.monotonic", lambda: next(clock))
    config = replace(SHORT, steps=None, minutes=0.5)
    for warmup, told in ((100, True), (3, False)):
        caplog.clear()
        schedule = ScheduleConfig("cosine", lr=1e-2, warmup=warmup)
        result, _, _ = fit(replace(config, schedule=schedule))
        assert 3 < result.step < 100
        expected = f"the warm-up takes 100 steps and the run {result.step}: the learning rate gets"
        assert [message[: len(expected)] for message in caplog.messages] == [expected] * told


def test_a_run_out_of_patience_stays_so_until_it_has_more(tmp_path: Path) -> None:
    scores = iter([0.1, 0.2, 0.3, 0.2, 0.4])
    config = replace(SHORT, validate_every=2, monitor="rate", patience=2)
    rate = {"metric": lambda _: {"rate": next(scores)}}
    run_and_fit(tmp_path / "run", config, **rate)
    for changed, end in (
        (replace(config, log_every=5), (6, "no better rate in 2 validations")),
        (replace(config, steps=30), (6, "no better rate in 2 validations")),
        (replace(config, steps=30, patience=3), (8, "no better rate in 3 validations")),
    ):
        with RunFolder(
            tmp_path / "run", settings(changed), resume=True, accept_changes=True
        ) as run:
            result, _, _ = fit(changed, run, **rate)
        assert (result.step, result.reason) == end


def test_a_run_beyond_its_new_end_says_where_it_is(tmp_path: Path) -> None:
    run_and_fit(tmp_path / "run", replace(SHORT, steps=11))
    shorter = replace(SHORT, steps=3)
    with RunFolder(tmp_path / "run", settings(shorter), resume=True, accept_changes=True) as run:
        result, events, _ = fit(shorter, run)
    assert (result.step, result.reason) == (11, "already past 3 steps")
    assert only(events, Ended)[0].reason == result.reason


def test_an_epoch_that_got_shorter_gives_way_to_the_next(tmp_path: Path) -> None:
    config = replace(SHORT, steps=11)
    run_and_fit(tmp_path / "run", config)
    longer = replace(config, steps=17)
    with RunFolder(tmp_path / "run", settings(longer), resume=True, accept_changes=True) as run:
        events: list[Event] = []
        result = Trainer(model(), Reversals(7), longer, run=run, listeners=[events.append]).fit()
    assert result.step == 17
    assert [e.epoch for e in only(events, Stepped)] == [1 + n / 7 for n in range(1, 7)]
    assert only(events, EpochEnded) == []


@pytest.mark.parametrize(("scorer", "best"), [("one", (2, 0.1)), ("another", (8, 0.3))])
def test_changed_evaluation_settings_reset_the_best_score(
    tmp_path: Path, scorer: str, best: tuple[int, float]
) -> None:
    folder, config = tmp_path / "run", replace(SHORT, steps=4, validate_every=2, monitor="rate")
    scores = iter([0.1, 0.2, 0.4, 0.3])
    rate = {"metric": lambda _: {"rate": next(scores)}}
    with RunFolder(folder, settings(config), scoring={"scorer": "one"}) as run:
        fit(config, run, **rate)
    longer = replace(config, steps=8, patience=2)
    with RunFolder(
        folder, settings(longer), resume=True, accept_changes=True, scoring={"scorer": scorer}
    ) as run:
        result, _, _ = fit(longer, run, **rate)
    assert (result.best_step, result.best_score) == best
    assert result.step == (6 if scorer == "one" else 8)


@pytest.mark.parametrize(("use", "chosen"), [("best", (14,)), ("average", (8, 12, 14))])
def test_a_best_checkpoint_deleted_since_is_not_looked_for(
    tmp_path: Path, use: str, chosen: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Resumed from before a damaged checkpoint, which had replaced older ones."""
    folder, scores = tmp_path / "run", iter([0.9, 0.5, 0.6, 0.7, 0.8, 0.4, 0.95, 0.93, 0.94])
    config = replace(SHORT, steps=12, validate_every=2, monitor="rate", keep=2)
    config = replace(config, use=use, average=5)
    rate = {"metric": lambda _: {"rate": next(scores)}}
    run_and_fit(folder, config, **rate)
    for name in {"best": ("12",), "average": ("02", "04", "06", "10")}[use]:
        shutil.rmtree(folder / f"checkpoints/step-000000{name}", ignore_errors=True)
    longer = replace(config, steps=14)
    with RunFolder(folder, settings(longer), resume=True, accept_changes=True) as run:
        result, events, _ = fit(longer, run, **rate)
    assert only(events, Chosen)[0].steps == chosen
    if use == "best":
        assert (result.best_step, result.best_score) == (14, 0.93)
        assert "the best checkpoint (step 4) is gone; resetting the best score" in caplog.text


def test_a_run_that_is_over_keeps_its_best(tmp_path: Path) -> None:
    folder, config = tmp_path / "run", replace(SHORT, steps=4, validate_every=2, monitor="rate")
    scores = iter([0.1, 0.2])
    with RunFolder(folder, settings(config), scoring={"scorer": "one"}) as run:
        fit(config, run, metric=lambda _: {"rate": next(scores)})
    with RunFolder(folder, settings(config), resume=True, scoring={"scorer": "another"}) as run:
        result, events, _ = fit(config, run, metric=lambda _: {"rate": 0.5})
    assert result.best_step == 2
    assert only(events, Chosen)[0].steps == (2,)


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_a_signal_is_reported_before_the_step_is_done() -> None:
    noted: list[object] = []
    learner = model()
    loss, calls = learner.loss, count(1)

    def interrupted(*args, **more):
        if next(calls) == 5:
            signal.raise_signal(signal.SIGTERM)
        return loss(*args, **more)

    learner.loss = interrupted
    listeners = [lambda event: noted.append(event.step)]
    result = Trainer(learner, Reversals(), SHORT, listeners=listeners, stopping=noted.append).fit()
    assert (result.interrupted, result.step) == ("SIGTERM", 5)
    assert noted[noted.index("SIGTERM") - 1] == 4
    assert 5 in noted[noted.index("SIGTERM") :]


@pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them")
def test_a_signal_in_the_last_validation_is_one_too(tmp_path: Path) -> None:
    def metric(learner: object) -> dict[str, float]:
        if folder.name == "stopped" and not (folder / "signalled").exists():
            (folder / "signalled").touch()
            signal.raise_signal(signal.SIGTERM)
        return {}

    config = replace(SHORT, steps=7)
    folder = tmp_path / "whole"
    _, _, whole = run_and_fit(folder, config, metric=metric)
    folder = tmp_path / "stopped"
    result, events, _ = run_and_fit(folder, config, metric=metric)
    assert (result.interrupted, result.step) == ("SIGTERM", 7)
    assert not only(events, Ended)
    with RunFolder(folder, settings(config), resume=True) as run:
        result, events, learner = fit(config, run, metric=metric)
    assert (result.interrupted, result.reason) == (None, "7 steps")
    assert [type(e) for e in events] == [Started, Ended, Chosen]
    for key, array in whole.state_dict().items():
        np.testing.assert_array_equal(array, learner.state_dict()[key])


def test_a_reader_who_goes_at_the_last_step_does_not_undo_the_training() -> None:
    def pipe(event: Event) -> None:
        if event.step == 7:
            raise BrokenPipeError

    result = Trainer(model(), Reversals(), replace(SHORT, steps=7), listeners=[pipe]).fit()
    assert (result.interrupted, result.reason) == (None, "7 steps")


def test_a_listener_whose_reader_has_gone_stops_training_as_a_signal_does(tmp_path: Path) -> None:
    events: list[Event] = []

    def pipe(event: Event) -> None:
        if event.step == 7:
            raise BrokenPipeError

    with RunFolder(tmp_path / "run", settings(SHORT)) as run:
        trainer = Trainer(model(), Reversals(), SHORT, run=run, listeners=[pipe, events.append])
        result = trainer.fit()
    assert (result.interrupted, result.step) == ("SIGPIPE", 7)
    assert names(tmp_path / "run") == ["step-00000007"]
    assert [e.signal for e in only(events, Interrupted)] == ["SIGPIPE"]


class OneEpoch(Reversals):
    """Notes which epochs were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def epoch(self, number: int) -> Sequence[Batch]:
        self.asked.append(number)
        return super().epoch(number)


def test_an_epoch_is_made_once() -> None:
    batches = OneEpoch()
    Trainer(model(), batches, replace(SHORT, steps=26)).fit()
    assert batches.asked == [0, 1]
