"""Every derivative written here by hand, compared with finite differences on this machine.

`cases()` is the one table: a row enrols an op or a layer in `pellucid check` and in every test that
all of them must pass (gradients, used twice, dtype kept, arguments untouched, other libraries).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pellucid.check.cases import Case, LayerCase, OpCase
from pellucid.check.gradient import gradient_check
from pellucid.check.layer_cases import layer_cases
from pellucid.check.op_cases import op_cases
from pellucid.core.checked import checked

__all__ = [
    "TOLERANCE",
    "Case",
    "LayerCase",
    "OpCase",
    "Result",
    "cases",
    "gradient_check",
    "layer_cases",
    "op_cases",
    "run_checks",
]

TOLERANCE = 1e-7


class Result(NamedTuple):
    """How one case fared."""

    kind: str
    name: str
    derivatives: int
    error: float
    """The largest over the inputs and parameters."""

    @property
    def passed(self) -> bool:
        """Whether the error, if it is a number at all, keeps within the tolerance."""
        return self.error <= TOLERANCE


def cases() -> list[Case]:
    """Return the table: the ops, then the layers."""
    return [*op_cases(), *layer_cases()]


def run_checks(table: Iterable[Case]) -> Iterator[Result]:
    """Check the gradients of cases of the table, one after another."""
    for case in table:
        with checked():
            errors = case.errors().values()
        yield Result(case.kind, case.name, len(errors), max(errors))
