"""Checks, on this machine, of the derivatives that are written by hand.

`cases()` is the one table of derivatives: a row enrols an op or a layer in `pellucid check` and in
every test that all of them must pass (gradients, used twice, dtype kept, arguments untouched, other
libraries), and an op with a fused kernel in the comparison of that kernel with the op
(`kernels.check`). `compiled.check` compares compiled generation with the layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pellucid.check.cases import Case, LayerCase, OpCase
from pellucid.check.exact import check_exact
from pellucid.check.gradient import gradient_check
from pellucid.check.layer_cases import layer_cases
from pellucid.check.op_cases import op_cases
from pellucid.check.result import TOLERANCE, Result
from pellucid.core.checked import checked

__all__ = [
    "TOLERANCE",
    "Case",
    "LayerCase",
    "OpCase",
    "Result",
    "cases",
    "check_exact",
    "gradient_check",
    "layer_cases",
    "op_cases",
    "run_checks",
]


def cases() -> list[Case]:
    """Return the table: the ops, then the layers."""
    return [*op_cases(), *layer_cases()]


def run_checks(table: Iterable[Case]) -> Iterator[Result]:
    """Check the gradients of cases of the table, one after another."""
    for case in table:
        with checked():
            errors = case.errors().values()
        yield Result(case.kind, case.name, len(errors), max(errors))
