"""What a campaign is: numbered cases, each of which becomes something."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol


class Case(NamedTuple):
    """What became of one case: its kind, and in capitals what must not happen."""

    kind: str
    became: str
    weight: int = 1
    """How many of the units that the campaign counts it was."""
    seconds: float = 0.0
    """How long its command took (`children.MOST_SECONDS`), where there is one."""
    figures: str = ""
    """What was measured besides."""

    @property
    def failed(self) -> bool:
        """Whether it must not happen."""
        return self.became[:1].isupper()


class Campaign(Protocol):
    """Prepared in a folder, then called with the number of a case, always the same for a number."""

    units: str

    def __call__(self, number: int) -> Case:
        """Run one case."""


class Mode(NamedTuple):
    """One campaign by name."""

    name: str
    prepare: Callable[[Path], Campaign]
    cases: int | None
    """How many there are unless the command says otherwise; None: the campaign knows."""
