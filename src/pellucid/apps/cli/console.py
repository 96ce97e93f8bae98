"""The terminal: standard output, tables, and the live line of a training run."""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from pellucid.apps.cli.language import encodable, printed_language, tr
from pellucid.system.language import Text
from pellucid.training import events

PLAIN_EVERY = 10.0  # seconds between plain lines


class Output(Console):
    """Standard output; at a terminal, only text with markup is coloured.

    A word between colons is not an emoji: a user's text may contain :warning: too.
    """

    def __init__(self) -> None:
        super().__init__(highlight=False, emoji=False)

    def say(self, text: str) -> None:
        """Print a text without markup; long lines are wrapped by the terminal."""
        self.print(text, markup=False, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`; `main` then ends quietly."""
        raise BrokenPipeError


def table(*heads: str, **options: Any) -> Table:
    """Make an empty table without lines; long texts are wrapped."""
    made = Table(box=None, pad_edge=False, header_style="bold", **options)
    for head in heads:
        made.add_column(head, overflow="fold")
    return made


class Progress:
    """Training listener that shows loss, tokens per second, time left and scores.

    At a terminal it is one live line; in a file, a pipe or a notebook, a plain line every ten
    seconds or more. Scores and the ends of the run get lines of their own.
    """

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._live = console.is_terminal and not console.is_jupyter
        self._between = encodable(" · ", console.encoding, ", ")
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
            redirect_stderr=sys.stderr.isatty(),  # a warning goes above the live line
        )
        self._task = self._bar.add_task(title, total=1.0, figures="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    def __call__(self, event: events.Event) -> None:
        """Show one event."""
        match event:
            case events.Started():
                limits = {"step": event.steps, "epoch": event.epochs, "minute": event.minutes}
                budget = [_limit(n, unit) for unit, n in limits.items() if n and math.isfinite(n)]
                most = tr(" or ").join(budget)
                begun = tr("{title}: {parameters:,} parameters, at most {most}").format(
                    title=self._title, parameters=event.parameters, most=most
                )
                at = tr(", resuming from step {}").format(event.step) if event.step else ""
                self.say(begun + at)
            case events.Trained():
                self._rate = event.tokens_per_second
            case events.Stepped():
                self._step(event)
            case events.Validated():
                self._held_out = tr("held-out {}").format(scores(event.loss, event.scores))
                best = tr(" (best so far)") if event.best else ""
                at = tr("step {}, epoch {:.2f}").format(event.step, event.epoch)
                self.say(f"{at}: {self._held_out}{best}")
            case events.Interrupted():
                self.say(tr("{}: step {} is saved. Resume with:").format(event.signal, event.step))
                self.say(f"  {event.resume}")
            case events.Chosen():
                steps = ", ".join(map(str, event.steps))
                kept = tr("kept the {} weights (step {})").format(tr(event.weights), steps)
                found = tr("held-out {}").format(scores(event.loss, event.scores))
                self.say(f"{kept}; {found}" if event.loss else kept)
            case events.Ended():
                self._bar.update(self._task, completed=1.0, figures=tr("scoring"))
                limit, _, unit = event.reason.partition(" ")
                reason = event.reason
                unit = unit.removesuffix("s")
                if unit == "minute":  # the clock's time says it already
                    reason = tr("the time limit")
                elif unit in ("step", "epoch"):
                    reason = _limit(float(limit), unit)
                ended = tr("trained to step {step} in {time} ({reason})")
                time_taken = clock(event.seconds)
                self.say(ended.format(step=event.step, time=time_taken, reason=reason))

    def _step(self, event: events.Stepped) -> None:
        """Update the live line after a step, or print a plain line if it is time."""
        left = "" if event.seconds_left is None else tr("{} left").format(clock(event.seconds_left))
        rate = tr("{:,.0f} tokens/s").format(self._rate) if self._rate else ""
        figures = [scores(event.loss, {}), rate, left, self._held_out]
        line = self._between.join(filter(None, figures))
        if self._live:
            self._bar.update(self._task, completed=event.share, figures=line)
        elif time.monotonic() - self._printed >= PLAIN_EVERY:
            self._printed = time.monotonic()
            self.say(tr("step {}").format(event.step) + self._between + line)

    def say(self, line: str | Text) -> None:
        """Print a line above the live line."""
        line = line.to(printed_language()) if isinstance(line, Text) else line
        self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def scores(loss: float | None, others: Mapping[str, float]) -> str:
    """Format scores on one line; error rates are percentages.

    >>> scores(0.51234, {"per": 0.183})
    'loss 0.512, PER 18.3 %'
    """
    parts = [] if loss is None else [tr("loss {:.3f}").format(loss)]
    for name, value in others.items():
        label = name.upper() if len(name) <= 4 else name.replace("_", " ")
        rate = name in ("per", "cer", "wer")
        parts.append(f"{label} {100 * value:.1f} %" if rate else f"{label} {value:.2f}")
    return ", ".join(parts)


def _limit(number: float, unit: str) -> str:
    """Format a limit of training in the user's language, such as 4,000 steps."""
    shown = f"{number:,.0f}" if number == int(number) else f"{number:g}"
    return tr(f"{{}} {unit if number == 1 else f'{unit}s'}").format(shown)


def clock(seconds: float) -> str:
    """Format a time as m:ss, or h:mm:ss from an hour on.

    >>> clock(75.4), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
