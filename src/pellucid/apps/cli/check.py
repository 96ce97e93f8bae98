"""`pellucid check`: every derivative against finite differences, as a table."""

from __future__ import annotations

from rich.table import Table

from pellucid.apps.cli.console import Output
from pellucid.apps.cli.language import tr
from pellucid.check import TOLERANCE, run_checks


def check() -> int:
    """Verify the hand-written derivative of every op and layer against finite differences.

    One random projection of the output, central differences along one random direction per input
    and parameter, in float64. The exit code is 1 if any error is above the tolerance.
    """
    console = Output()
    title = tr("Gradients, relative error at most {:.0e}").format(TOLERANCE)
    table = Table(title=title, title_justify="left")
    table.add_column(tr("op or layer"))
    table.add_column(tr("inputs and\nparameters"), justify="right")
    table.add_column(tr("worst error"), justify="right")
    table.add_column("")
    failed = 0
    for result in run_checks():
        failed += not result.passed
        verdict = "[green]ok[/]" if result.passed else "[bold red]WRONG[/]"
        table.add_row(
            f"{result.kind} {result.name}", str(result.derivatives), f"{result.error:.1e}", verdict
        )
    console.print(table)
    console.print(
        tr("{correct} of {all} correct").format(
            correct=table.row_count - failed, all=table.row_count
        )
    )
    return 1 if failed else 0
