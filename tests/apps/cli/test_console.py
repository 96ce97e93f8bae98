"""What users wrote is printed unchanged."""

from __future__ import annotations

import io
import logging
import math
import sys

import pytest
from rich.console import Console

from pellucid.apps.cli.console import Output, Progress
from pellucid.apps.cli.main import Warnings
from pellucid.training.events import Ended, Started, Stepped


def test_a_word_between_colons_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    Output().print(":warning: ok", markup=False)
    assert capsys.readouterr().out == ":warning: ok\n"


def test_the_live_line_shows_the_name_of_a_run_unchanged() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=97)
    with Progress(console, "[red]:warning:") as progress:
        rows = progress._bar.make_tasks_table(progress._bar.tasks)
        console.print(rows)
    assert isinstance(console.file, io.StringIO)
    assert "[red]:warning:" in console.file.getvalue()


def test_a_warning_goes_above_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    console = Console(file=screen, force_terminal=True, width=97)
    record = logging.LogRecord("some", logging.WARNING, "", 0, "left out 1 of 9", None, None)
    with Progress(console, "run"):
        Warnings().emit(record)
    shown = screen.getvalue()
    cleared = shown.rindex("\x1b[2K", 0, shown.index("left out 1 of 9\n"))
    assert "run" not in shown[cleared : shown.index("left out")]


def test_a_limit_without_end_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(), "run") as progress:
        progress(Started(0, 0.0, 7, 100, None, math.inf))
    assert capsys.readouterr().out == "run: 7 parameters, at most 100 steps\n"


def test_a_time_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(), "run") as progress:
        progress(Ended(120, 1.0, "0.25 minutes", seconds=17.0))
        progress(Ended(120, 1.0, "120 steps", seconds=17.0))
    assert capsys.readouterr().out.splitlines() == [
        "trained to step 120 in 0:17 (the time limit)",
        "trained to step 120 in 0:17 (120 steps)",
    ]


@pytest.mark.parametrize(
    ("encoding", "line"),
    [("utf-8", "step 7 · loss 3.500 · 0:11 left\n"), ("ascii", "step 7, loss 3.500, 0:11 left\n")],
)
def test_a_plain_line_has_only_what_the_stream_can_say(
    monkeypatch: pytest.MonkeyPatch, encoding: str, line: str
) -> None:
    monkeypatch.setattr("pellucid.apps.cli.console.PLAIN_EVERY", 0.0)
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding, newline="")
    with Progress(Console(file=stream, width=97), "run") as progress:
        progress(Stepped(7, 0.5, loss=3.5, share=0.5, seconds_left=11.0))
    stream.flush()
    assert written.getvalue().decode(encoding) == line


def test_a_notebook_gets_plain_lines() -> None:
    assert Progress(Console(force_terminal=True), "g2p")._live
    assert not Progress(Console(force_terminal=True, force_jupyter=True), "g2p")._live
