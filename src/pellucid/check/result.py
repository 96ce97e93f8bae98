"""How one row of a table fared."""

from typing import NamedTuple

TOLERANCE = 1e-7
"""The largest relative error of a derivative."""


class Result(NamedTuple):
    """How one row fared."""

    kind: str
    name: str
    arrays: int
    """How many arrays were compared."""
    error: float
    """The largest of them."""
    tolerance: float = TOLERANCE
    reason: str = ""
    """Why nothing was compared."""

    @property
    def passed(self) -> bool:
        """Whether the error, if it is a number at all, keeps within the tolerance."""
        return self.error <= self.tolerance
