"""What users wrote is printed as it stands."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pellucid.commands.console import Output
from pellucid.commands.progress import Progress


def test_a_word_between_colons_is_no_picture(capsys: pytest.CaptureFixture[str]) -> None:
    Output().print(":warning: ok", markup=False)
    assert capsys.readouterr().out == ":warning: ok\n"


def test_the_name_of_a_run_stands_on_the_live_line_as_it_is() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=97)
    with Progress(console, "[red]:warning:") as progress:
        rows = progress._bar.make_tasks_table(progress._bar.tasks)
        console.print(rows)
    assert isinstance(console.file, io.StringIO)
    assert "[red]:warning:" in console.file.getvalue()
