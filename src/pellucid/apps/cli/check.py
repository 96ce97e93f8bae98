"""`pellucid check`: every derivative against finite differences, as a table."""

from __future__ import annotations

from typing import Annotated

import tyro

from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.language import tr
from pellucid.check import TOLERANCE, cases, run_checks
from pellucid.core.errors import UsageError
from pellucid.core.settings import nearest

SHOWN = 10


def check(
    of: tuple[str, ...] = (), /, *, whole: Annotated[bool, tyro.conf.arg(name="all")] = False
) -> int:
    """Verify the hand-written derivative of every op and layer against finite differences.

    One random projection of the output, central differences along one random direction per input
    and parameter, in float64. Shows the ten worst errors, and all above the tolerance, with which
    the exit code is 1.

    Args:
        of: Only the rows that have one of these in their names, such as softmax; all are shown.
        whole: Show every op and layer.
    """
    named = {f"{case.kind} {case.name}": case for case in cases()}
    for part in of:
        if not any(part in name for name in named):
            near = nearest(part, [case.name for case in named.values()])
            raise UsageError(f"no op or layer has {part!r} in its name{near}")
    console = Output()
    title = tr("Gradients, relative error at most {:.0e}").format(TOLERANCE)
    heads = (tr("op or layer"), tr("inputs and\nparameters"), tr("worst error"), "")
    rows = table(*heads, title=title, title_justify="left")
    rows.columns[1].justify = rows.columns[2].justify = "right"
    asked = [case for name, case in named.items() if not of or any(part in name for part in of)]
    results = sorted(run_checks(asked), key=lambda result: (result.passed, -result.error))
    failed = sum(not result.passed for result in results)
    shown = len(results) if whole or of else max(SHOWN, failed)
    for result in results[:shown]:
        verdict = "[green]ok[/]" if result.passed else "[bold red]WRONG[/]"
        rows.add_row(
            f"{result.kind} {result.name}", str(result.derivatives), f"{result.error:.1e}", verdict
        )
    console.print(rows)
    console.print(
        tr("{correct} of {all} correct").format(correct=len(results) - failed, all=len(results))
    )
    if shown < len(results):
        console.print(tr("These are the {} worst; --all shows the rest.").format(shown))
    return 1 if failed else 0
