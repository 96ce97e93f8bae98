"""A fault campaign: numbered cases, each with an outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol


class Case(NamedTuple):
    """The outcome of one case; an outcome in capitals is a failure."""

    kind: str
    became: str
    weight: int = 1
    """Number of the campaign's units that the case counts for."""
    seconds: float = 0.0
    """Duration of its command, if there is one."""
    figures: str = ""
    """Further measurements."""

    @property
    def failed(self) -> bool:
        """Whether the outcome is a failure."""
        return self.became[:1].isupper()


class Campaign(Protocol):
    """A function from the number of a case to its outcome.

    The same number gives the same case.
    """

    units: str

    def __call__(self, number: int) -> Case:
        """Run one case."""


class Mode(NamedTuple):
    """A campaign with its name."""

    name: str
    prepare: Callable[[Path], Campaign]
    cases: int | None
    """Default number of cases; None: the campaign has a fixed number."""
