"""What a person sees while a model trains: one live line at a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from pellucid.training.events import (
    Chosen,
    Ended,
    Event,
    Interrupted,
    Started,
    Stepped,
    Trained,
    Validated,
)

PLAIN_EVERY = 10.0  # seconds between plain lines


class Progress:
    """Listens to a trainer and shows loss, useful tokens/s, time left and the held-out score."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._live = console.is_terminal
        self._between = _encodable(" · ", console.encoding, ", ")
        self._rate = 0.0
        self._held_out = ""
        self._printed = time.monotonic()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._bar.add_task(title, total=1.0, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Started():
                budget = [
                    f"{event.steps} steps" if event.steps else "",
                    f"{event.epochs} epochs" if event.epochs else "",
                    f"{event.minutes:g} min" if event.minutes else "",
                ]
                at = f", going on from step {event.step}" if event.step else ""
                self.say(
                    f"{self._title}: {event.parameters:,} parameters, "
                    f"at most {' or '.join(filter(None, budget))}{at}"
                )
            case Trained():
                self._rate = event.tokens_per_second
            case Stepped():
                self._step(event)
            case Validated():
                self._held_out = f"held-out {scores(event.loss, event.scores)}"
                best = " (best so far)" if event.best else ""
                self.say(f"step {event.step}, epoch {event.epoch:.2f}: {self._held_out}{best}")
            case Interrupted():
                self.say(f"{event.signal}: the step was finished and saved. Go on with:")
                self.say(f"  {event.resume}")
            case Chosen():
                steps = ", ".join(map(str, event.steps))
                said = f"; held-out {scores(event.loss, event.scores)}" if event.loss else ""
                self.say(f"kept the {event.weights} weights (step {steps}){said}")
            case Ended():
                self._bar.update(self._task, completed=1.0, figures="scoring")
                self.say(f"trained to step {event.step} in {clock(event.seconds)} ({event.reason})")
            case _:
                pass

    def _step(self, event: Stepped) -> None:
        left = "" if event.seconds_left is None else f"{clock(event.seconds_left)} left"
        rate = f"{self._rate:,.0f} tokens/s" if self._rate else ""
        figures = [f"loss {event.loss:.3f}", rate, left, self._held_out]
        line = self._between.join(filter(None, figures))
        if self._live:
            self._bar.update(self._task, completed=event.share, figures=line)
        elif time.monotonic() - self._printed >= PLAIN_EVERY:
            self._printed = time.monotonic()
            self.say(f"step {event.step}{self._between}{line}")

    def say(self, line: str) -> None:
        """Print a line above the live one."""
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def _encodable(text: str, encoding: str, plain: str) -> str:
    """Return the text, or the plain one where a stream cannot say it and would end training."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return plain
    return text


def scores(loss: float | None, others: Mapping[str, float]) -> str:
    """Write scores on one line, error rates as the percentages they are.

    >>> scores(0.51234, {"per": 0.183})
    'loss 0.512, PER 18.3 %'
    """
    parts = [] if loss is None else [f"loss {loss:.3f}"]
    for name, value in others.items():
        label = name.upper() if len(name) <= 4 else name.replace("_", " ")
        share = name in ("per", "wer")
        parts.append(f"{label} {100 * value:.1f} %" if share else f"{label} {value:.2f}")
    return ", ".join(parts)


def clock(seconds: float) -> str:
    """Write a time as m:ss, or h:mm:ss from an hour on.

    >>> clock(75.4), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
