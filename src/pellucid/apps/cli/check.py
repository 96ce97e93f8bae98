"""`pellucid check`: verify derivatives, kernels and compiled generation.

Print tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import tyro

from pellucid.apps.cli.console import Output, table
from pellucid.apps.cli.language import tr
from pellucid.check import TOLERANCE, OpCase, Result, cases, check_exact, op_cases, run_checks
from pellucid.compiled.check import MODELS, check_engine
from pellucid.core.dispatch import enabled
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import nearest
from pellucid.kernels.check import (
    BFLOAT16,
    StepCase,
    check_bfloat16,
    check_kernels,
    is_of_one_rule,
    kernel_cases,
)
from pellucid.kernels.precision import bfloat16_products

SHOWN = 10
"""Number of worst rows that a table shows."""


class _Rows(NamedTuple):
    """The cases to check, by name."""

    derivatives: dict[str, Any]
    kernels: dict[str, Any]
    """Cases of kernels; None stands for the products in bfloat16."""
    engine: dict[str, Any]

    def named(self, of: Sequence[str]) -> _Rows:
        """Return the cases whose names contain one of these texts; all without any.

        Raises `UsageError` for a text that no name contains.
        """
        for part in of:
            names = [name for rows in self for name in rows]
            if not any(part in name for name in names):
                near = nearest(part, [name.partition(" ")[2] for name in names])
                raise UsageError(f"no op or layer has {part!r} in its name{near}")
        if not of:
            return self
        return _Rows(*({k: v for k, v in rows.items() if any(p in k for p in of)} for rows in self))


def check(
    of: tuple[str, ...] = (),
    /,
    *,
    whole: Annotated[bool, tyro.conf.arg(name="all")] = False,
    fast: bool = False,
    exact: bool = False,
) -> int:
    """Verify derivatives, kernels and compiled generation on this machine.

    The derivative of every op and layer is compared with central differences, in float64; every
    fused kernel with its op, whose own error in float32 it may have twice, and with itself on one
    thread and on three; compiled generation with the layers. Shows the ten worst errors of each,
    and all that are too large, with which the exit code is 1. Takes half a minute, and one more
    where kernels must be compiled first.

    Args:
        of: Only the rows that have one of these in their names, such as softmax; all are shown.
        whole: Show every row.
        fast: Leave out layers, and kernels that are compiled for this check alone. Takes five
            seconds, and ten more where kernels must be compiled first.
        exact: Compare derivatives only, over finite fields: exactly, however small an error is.
    """
    rows = _rows(fast, exact).named(of)
    found: dict[str, Iterator[Result]]
    if exact:
        found = {tr("Gradients, compared exactly"): map(check_exact, rows.derivatives.values())}
    else:
        found = {
            tr("Gradients, relative error at most {:.0e}").format(TOLERANCE): run_checks(
                rows.derivatives.values()
            ),
            tr("Kernels of this machine, error as a fraction of what is allowed"): _kernels(
                list(rows.kernels.values())
            ),
            tr("Compiled generation, relative error"): check_engine(rows.engine.values(), not fast),
        }
    every = [_shown(title, list(results), bool(whole or of)) for title, results in found.items()]
    compared = [result for results in every for result in results if not result.reason]
    correct = sum(result.passed for result in compared)
    console = Output()
    console.print(tr("{correct} of {all} correct").format(correct=correct, all=len(compared)))
    if not (whole or of):
        console.print(tr("These are the {} worst; --all shows the rest.").format(SHOWN))
    console.print(tr("{:.0f} s of processor time").format(sum(os.times()[:4])))
    return 1 if correct < len(compared) else 0


def _rows(fast: bool, exact: bool) -> _Rows:
    """Collect the cases to check."""
    derivatives: Sequence[Any] = op_cases() if fast else cases()
    named = {f"{case.kind} {case.name}": case for case in derivatives}
    if exact:
        return _Rows(named, {}, {})
    kernels: dict[str, Any] = {
        f"kernel {case.name}": case
        for case in kernel_cases()
        if not (fast and is_of_one_rule(case))
    }
    models = list(MODELS)[: 1 if fast else None]
    return _Rows(named, kernels | {f"kernel {BFLOAT16}": None}, {f"engine {m}": m for m in models})


def _kernels(rows: Sequence[OpCase | StepCase | None]) -> Iterator[Result]:
    """Check kernels, and products in bfloat16 if they are among `rows`."""
    yield from check_kernels([row for row in rows if row is not None])
    if None in rows and enabled():
        try:
            yield check_bfloat16(bfloat16_products())
        except UserError as lacking:
            yield Result("kernel", BFLOAT16, 0, 0.0, reason=str(lacking).partition(":")[0])


def _shown(title: str, results: list[Result], whole: bool) -> list[Result]:
    """Print a table of the worst results, then of those that were not compared.

    Return all.
    """
    if not results:
        return results
    heads = (tr("row"), tr("arrays"), tr("worst error"), "")
    rows = table(*heads, title=title, title_justify="left")
    rows.columns[1].justify = rows.columns[2].justify = "right"
    results.sort(key=lambda result: (result.passed, bool(result.reason), -result.error))
    failed = sum(not result.passed for result in results)
    count = len(results) if whole else max(SHOWN, failed)
    for i, result in enumerate(results):
        name = f"{result.kind} {result.name}"
        if result.reason:
            rows.add_row(name, "", "", tr("not compared: {}").format(result.reason))
        elif i < count:
            verdict = "[green]ok[/]" if result.passed else "[bold red]WRONG[/]"
            rows.add_row(name, str(result.arrays), f"{result.error:.1e}", verdict)
    Output().print(rows)
    return results
