"""The training loop: steps, records, validation, checkpoints, and when to stop."""

import gc
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pellucid.core.array import to_host
from pellucid.core.batch import Batch
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import from_mapping
from pellucid.nn import StateError
from pellucid.optim.model import ModelOptimizer
from pellucid.optim.schedules import SCHEDULES
from pellucid.optim.step import DivergedError, Tally, train_step
from pellucid.system.language import plural
from pellucid.system.weights import average, check_weights
from pellucid.tasks.scores import loss_sum, mean_loss
from pellucid.training import events
from pellucid.training.checkpoint import (
    Checkpoint,
    TrainerState,
    checkpoint_path,
    checkpoint_paths,
    keep_checkpoints,
    read_checkpoint,
    step_of,
)
from pellucid.training.config import TrainingConfig
from pellucid.training.ema import MovingAverage
from pellucid.training.run import MODEL, RunFolder
from pellucid.training.signals import stop_on_signals

logger = logging.getLogger(__name__)

# A loss this far above the first one, and above that of guessing evenly among 160,000 tokens, has
# diverged. It is a running mean, so that one bad batch does not end a run.
EXPLODED, EXPLODED_NATS, RUNNING = 3.0, 12.0, 0.9
UNSETTLED_STEPS, SETTLED = 3, 3.0
"""The pace leaves out this many first steps, and is known this many seconds after them."""


class TrainingData(Protocol):
    """Training data: the batches of an epoch depend on nothing but its number, from 0."""

    def epoch(self, number: int) -> Sequence[Batch]:
        """Return the batches of one epoch, in order."""


ValidationMetric = Callable[[Any], Mapping[str, float]]


@dataclass(frozen=True)
class Result:
    """How training ended; `interrupted` is the name of the signal, if one ended it."""

    step: int
    reason: str
    best_step: int | None
    best_score: float | None
    interrupted: str | None = None


class Trainer:
    """Train `model` on `batches`, sending events to `listeners`.

    model: a `models.model.Model`, or an object with its `loss`, the methods of a module and, for
    the paper's schedule, `config.d_model`. validation: held-out batches. metric: called with the
    model in eval mode at every validation; returns further scores by name. run: folder for
    checkpoints and metrics, begun by `fit`; if it was resumed, training continues from its
    checkpoint. Without a run nothing is saved, and the model keeps its last weights or, if
    `config.use` is "ema", their moving average. stopping: called with the name of the signal that
    ends training, before the step is finished (see `stop_on_signals`).

    Raises `UsageError` if there is nothing to train on, and as `TrainingConfig.check`. Raises
    `UserError` if the weights of the run's checkpoint do not fit the model.
    """

    def __init__(
        self,
        model: Any,
        batches: TrainingData,
        config: TrainingConfig,
        *,
        validation: Sequence[Batch] = (),
        metric: ValidationMetric | None = None,
        run: RunFolder | None = None,
        listeners: Iterable[events.Listener] = (),
        stopping: Callable[[str], object] = lambda name: None,
    ) -> None:
        offered = {"loss"} if validation else set[str]()
        if metric and config.monitor != "loss":
            offered.add(config.monitor)  # the first validation sees whether the metric gives it
        config.check(offered if validation or metric else None)
        self.model, self.batches, self.config, self.run = model, batches, config, run
        self.validation, self.metric = validation, metric
        self.listeners: list[events.Listener] = list(listeners)
        self.stopping = stopping
        self.optimizer = ModelOptimizer(model.named_parameters(), config.optimizer)
        averaged = model.named_parameters() if config.use == "ema" else ()
        self.average = MovingAverage(averaged, config.ema)
        self.state = TrainerState()
        if run is not None and run.checkpoint is not None:
            self._restore(run.checkpoint)
        self._began = time.monotonic() - self.state.seconds
        self._epoch, self._batches = self.state.epoch, batches.epoch(self.state.epoch)
        if not len(self._batches):
            raise UsageError("there is nothing to train on: the epoch has no batches")
        if self.state.batch >= len(self._batches):  # accepted changes made the epoch shorter
            self.state.epoch, self.state.batch, self.state.pass_ = self._epoch + 1, 0, Tally()
        if run is not None:
            self._apply_changes(run)
        self._first_step = self.state.step
        self._settled: tuple[float, float] | None = None
        """Share of the budget used, and the time, when the first steps were over."""
        self._output_closed = False
        # Minutes are no number of steps before the first.
        self._planned = config.total_steps(step=1, epochs=1 / len(self._batches), seconds=0.0)
        self._report_rate()

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Load the state, the weights and the optimizer's state from a checkpoint."""
        self.state = checkpoint.state.trainer
        try:
            self.model.load_state_dict(checkpoint.weights)
        except StateError as error:
            _, *errors = str(error).splitlines()
            raise UserError(
                f"the checkpoint's weights are not this model's ({len(errors)} do not fit, the "
                f"first: {errors[0].strip()}); a run keeps the sizes of its model: put them back, "
                "or train a new run"
            ) from None
        self.optimizer.load_state_dict(checkpoint.optimizer)
        # Where the run kept no average, it begins with the weights.
        self.average.load_state_dict(checkpoint.average or checkpoint.weights)

    def _apply_changes(self, run: RunFolder) -> None:
        """Adapt the state to settings that differ from those of the checkpoint.

        The best score is reset if it is no longer comparable, or if its checkpoint is gone.
        """
        state, checkpoint = self.state, run.checkpoint
        if run.changed:  # a run that was over may have been given more to do
            state.stopped = self.config.reason_to_stop(**self._used())
        averaged = self.config.use == "ema"
        other_weights = checkpoint is not None and bool(checkpoint.average) != averaged
        # A later checkpoint, damaged and deleted since, may have replaced some that this one names.
        there = set(map(step_of, checkpoint_paths(run.checkpoints)))
        state.checkpoints = tuple(step for step in state.checkpoints if step in there)
        ended = state.stopped is not None and (run.path / MODEL).exists()
        lost = state.best_step not in {None, *there} and not ended
        if (run.rescored and state.stopped is None) or other_weights or lost:
            if lost:
                logger.warning(
                    f"the best checkpoint (step {state.best_step}) is gone; resetting the best "
                    "score"
                )
            elif run.rescored == {"held_out"} and not other_weights:
                logger.warning("the validation data changed; resetting the best score")
            else:
                logger.warning("evaluation settings changed; resetting the best score")
            run.scored_since = state.step
            state.best_score = state.best_step = None
            state.not_improved = 0
        if run.changed and state.stopped is None:
            state.stopped = self._out_of_patience()

    def _report_rate(self) -> None:
        """Warn if a short run, or changed settings, give an unexpected learning rate."""
        step = self.state.step
        if step < self._planned:
            self._report_warmup(self._planned)
        checkpoint = None if self.run is None else self.run.checkpoint
        if checkpoint is None or self.state.stopped is not None:
            return
        with suppress(KeyError, UserError):  # settings of another version
            before = from_mapping(TrainingConfig, checkpoint.settings["training"], "the checkpoint")
            was, now = (self._learning_rate(step, x) for x in (before, self.config))
            if max(was, now) > 1.2 * min(was, now):
                logger.warning(
                    f"at step {step} the learning rate was {was:.2g}; by the settings now it is "
                    f"{now:.2g}"
                )

    def _report_warmup(self, total: float) -> None:
        """Warn if a run of `total` steps ends before the learning rate is at its height."""
        if total < (warmup := self.config.schedule.warmup):
            logger.warning(
                f"the warm-up takes {warmup} steps and the run {total:.0f}: the learning rate gets "
                f"to {total / warmup:.2g} of its height; set `training.schedule.warmup` to fewer, "
                "or train longer"
            )

    def fit(self) -> Result:
        """Train to the end; SIGINT and SIGTERM end it after the present step, and save.

        At the end the model is in eval mode with the weights that `config.use` selects; if training
        was interrupted, it keeps its last weights, in train mode. A listener that raises
        `BrokenPipeError` gets no more events, and training ends as if by SIGPIPE. Signals are
        handled only in the main thread.

        Raises `DivergedError` for a loss, a gradient or a held-out score that is not finite, for
        such a weight when it is to be saved, and for a loss that explodes; that step is not
        applied, or its weights are not saved. Raises `UserError` if a checkpoint cannot be written
        or read, `KeyboardInterrupt` for a second SIGINT.
        """
        state, config = self.state, self.config
        if self.run is not None:
            self.run.begin()
        parameters = sum(math.prod(p.shape) for _, p in self.model.named_parameters())
        self._emit(events.Started, parameters, config.steps, config.epochs, config.minutes)
        self.model.train()
        # Python's search for garbage skips what is there now, which outlives training: a search
        # through the compiler's and the data's objects takes as long as several steps.
        gc.freeze()
        with stop_on_signals(self.stopping) as request, ExitStack() as after:
            after.callback(gc.unfreeze)
            while state.stopped is None:
                self._step()
                # A run that is over needs no reader; but a signal during its last validation
                # ends it before the scoring.
                closed = self._output_closed and state.stopped is None
                if stop := request.signal or closed * "SIGPIPE":
                    return self._interrupted(stop)
        if self.run is not None:
            # A kill after the last was written may have left others.
            keep_checkpoints(self.run.checkpoints, self._kept())
        if self._planned >= self.config.schedule.warmup:  # else that was said before
            self._report_warmup(state.step)
        self._emit(events.Ended, state.stopped, self.seconds, state.best_step, state.best_score)
        self._choose_weights()
        self.model.eval()
        return Result(state.step, state.stopped, state.best_step, state.best_score)

    @property
    def seconds(self) -> float:
        """Seconds since this trainer was made, with the training time before a resume."""
        return time.monotonic() - self._began

    # A step, and what falls due after it. The checkpoint comes last: it holds all the rest.

    def _step(self) -> None:
        """Take one training step, then record, validate and save whatever is due.

        The checkpoint comes last, because it contains the state of all the rest.
        """
        state, config = self.state, self.config
        began = time.monotonic()
        if self._epoch != state.epoch:
            self._epoch, self._batches = state.epoch, self.batches.epoch(state.epoch)
        lr = self._learning_rate(state.step + 1)
        tally, norm = train_step(
            self.model,
            self.optimizer,
            self._batches[state.batch],
            config,
            step=state.step + 1,
            lr=lr,
        )
        self.average.update(state.step + 1)
        tally.seconds = time.monotonic() - began
        self._advance(tally)
        self._check_loss(tally.loss, lr)
        epoch_over = state.batch == 0
        state.stopped = config.reason_to_stop(**self._used())
        if state.step % config.log_every == 0 or state.stopped:
            self._record(lr, norm)
        if epoch_over:
            done = state.pass_
            self._emit(events.EpochEnded, done.loss, done.loss_per_sentence, self.seconds)
            state.pass_ = Tally()
        due = epoch_over if config.validate_unit == "epochs" else True
        count = state.epoch if config.validate_unit == "epochs" else state.step
        validate = bool(state.stopped) or (due and count % config.validate_every == 0)
        if validate and (self.validation or self.metric):
            self._validate()
        every = config.checkpoint_every
        if validate or (every is not None and state.step % every == 0):
            state.checkpoints = (*state.checkpoints, state.step)[-config.checkpoints_kept :]
            self._save()

    def _advance(self, tally: Tally) -> None:
        """Count a step in the state, and send `Stepped`."""
        state = self.state
        state.step += 1
        state.batch += 1
        if state.batch == len(self._batches):
            state.epoch, state.batch = state.epoch + 1, 0
        state.useful_tokens += tally.useful_tokens
        state.window.add(tally)
        state.pass_.add(tally)
        share = self.config.share_used(**self._used())
        self._emit(events.Stepped, tally.loss, share, self._seconds_left())

    def _check_loss(self, loss: float, lr: float) -> None:
        """Raise `DivergedError` if the running mean of the loss has exploded."""
        state = self.state
        if state.first_loss is None or state.running_loss is None:
            state.first_loss = state.running_loss = loss
        state.running_loss = RUNNING * state.running_loss + (1 - RUNNING) * loss
        if state.running_loss > max(EXPLODED * state.first_loss, EXPLODED_NATS):
            raise DivergedError(
                f"the loss rose from {state.first_loss:.3g} to {loss:.3g} nats per token",
                state.step,
                lr,
            )

    def _record(self, lr: float, norm: float) -> None:
        """Send `Trained` with the means since the last record."""
        state, window = self.state, self.state.window
        self._emit(
            events.Trained,
            window.loss,
            window.loss_per_sentence,
            lr,
            norm,
            window.clipped / window.steps,
            state.useful_tokens,
            window.useful_tokens / max(window.seconds, 1e-9),
            self.seconds,
            self._seconds_left(),
        )
        state.window = Tally()

    def _validate(self) -> None:
        """Score the held-out data, update the best score, and send `Validated`."""
        state, config = self.state, self.config
        began = time.monotonic()
        with self.average.in_place():
            loss, scores = self._score()
        offered = {"loss": loss, **scores} if loss is not None else scores
        config.check(offered)
        score = offered[config.monitor]
        better = state.best_score is None or (
            score > state.best_score if config.higher_wins else score < state.best_score
        )
        if better:
            state.best_score, state.best_step, state.not_improved = score, state.step, 0
        else:
            state.not_improved += 1
        self._emit(events.Validated, loss, better, time.monotonic() - began, scores)
        if state.stopped is None:
            state.stopped = self._out_of_patience()

    def _score(self) -> tuple[float | None, dict[str, float]]:
        """Compute the held-out loss and metrics of the present weights.

        The model is in train mode afterwards. Raises `DivergedError` for a score that is not
        finite.
        """
        self.model.eval()
        loss = None
        if self.validation:
            loss = mean_loss([loss_sum(self.model, batch) for batch in self.validation])
        scores: dict[str, float] = {}
        if self.metric:
            scores = {k: float(v) for k, v in self.metric(self.model).items()}
        self.model.train()
        if not all(map(math.isfinite, [*scores.values(), 0.0 if loss is None else loss])):
            raise self._diverged(f"a held-out score is not finite (loss {loss}, {scores})")
        return loss, scores

    def _diverged(self, what: str) -> DivergedError:
        """Make the error for weights that diverged at the last step."""
        step = self.state.step
        return DivergedError(what, step, self._learning_rate(max(step, 1)))

    # Saving, and the weights to leave with

    def _save(self) -> None:
        """Write a checkpoint. Raises `DivergedError` if a weight is not finite."""
        if self.run is None:
            return
        state = self.state
        weights = {name: to_host(x) for name, x in self.model.state_dict().items()}
        try:
            check_weights(weights, "its weights")
        except UserError as error:  # a step may diverge though its loss was finite
            raise self._diverged(str(error)) from None
        state.seconds = self.seconds
        optimizer, averages = self.optimizer.state_dict(), self.average.state_dict()
        self._emit(events.Saved, self.run.save(state, weights, optimizer, self._kept(), averages))

    def _kept(self) -> set[int]:
        """Return the steps of the checkpoints to keep: regular ones, the best, the last."""
        state = self.state
        best = [] if state.best_step is None else [state.best_step]
        return {state.step, *state.checkpoints, *best}

    def _interrupted(self, signal: str) -> Result:
        """Save after a signal, and return the result."""
        state = self.state
        if state.step not in state.checkpoints:
            self._save()
        if self.run is not None:
            self._emit(events.Interrupted, signal, self.run.resume_command)
        return Result(state.step, "interrupted", state.best_step, state.best_score, signal)

    def _choose_weights(self) -> None:
        """Give the model the weights that `config.use` selects, and send `Chosen`."""
        state, config, use = self.state, self.config, self.config.use
        steps: Sequence[int] = [state.step]
        if self.run is not None and use == "average":
            steps = state.checkpoints[-config.average :]
        elif self.run is not None and use in ("best", "ema") and state.best_step is not None:
            steps = [state.best_step]
        elif use != "ema":
            use = "last"
        if self.run is not None and (use in ("best", "average") or steps[0] != state.step):
            paths = [checkpoint_path(self.run.checkpoints, step) for step in steps]
            found = [read_checkpoint(path) for path in paths]
            if use == "ema":
                self.average.load_state_dict(found[0].average)
            else:
                self.model.load_state_dict(average([each.weights for each in found]))
        if use == "ema":
            self.average.swap()
        scored = use == "average" and (self.validation or self.metric)
        self._emit(events.Chosen, use, tuple(steps), *(self._score() if scored else ()))

    # How far along

    def _learning_rate(self, step: int, config: TrainingConfig | None = None) -> float:
        """Return the learning rate of a step by the schedule."""
        config = config or self.config
        schedule = config.schedule
        width = self.model.config.d_model if "d_model" in SCHEDULES[schedule.name].reads else 1
        epochs = self.state.epoch + (self.state.batch + 1) / len(self._batches)
        total = config.total_steps(step=step, epochs=epochs, seconds=self.seconds)
        return schedule.at(step, total=total, d_model=width)

    def _epochs(self) -> float:
        """Return the number of epochs completed, with the fraction of the present one."""
        return self.state.epoch + self.state.batch / len(self._batches)

    def _used(self) -> dict[str, Any]:
        """Return the amounts that limits may end: steps, epochs and seconds."""
        return {"step": self.state.step, "epochs": self._epochs(), "seconds": self.seconds}

    def _seconds_left(self) -> float | None:
        """Return the time left at the present pace; None until the pace is known.

        The first steps do not count: kernels are compiled or loaded in them.
        """
        share, seconds = self.config.share_used(**self._used()), self.seconds
        if self._settled is None:
            if self.state.step >= self._first_step + UNSETTLED_STEPS:
                self._settled = share, seconds
            return None
        gained, spent = share - self._settled[0], seconds - self._settled[1]
        return spent * (1 - share) / gained if spent >= SETTLED and gained > 0 else None

    def _out_of_patience(self) -> str | None:
        """Return the reason to stop if too many validations brought no new best, else None."""
        config = self.config
        if config.patience is None or self.state.not_improved < config.patience:
            return None
        times = plural(config.patience, "validation")
        return f"no better {config.monitor} in {config.patience} {times}"

    def _emit(self, kind: type[events.Event], *values: Any) -> None:
        """Send an event to the run's metrics and to all listeners."""
        event = kind(self.state.step, self._epochs(), *values)
        if self.run is not None:
            self.run.metrics(event)
        for listener in list(self.listeners):
            try:
                listener(event)
            except BrokenPipeError:  # the reader of what it prints has gone
                self.listeners.remove(listener)
                self._output_closed = True
