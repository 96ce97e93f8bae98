"""The result of one row of a table of checks."""

from typing import NamedTuple

TOLERANCE = 1e-7
"""The largest relative error of a derivative that passes."""


class Result(NamedTuple):
    """The result of one row: the error of its arrays, and whether it passes."""

    kind: str
    name: str
    arrays: int
    """The number of arrays that were compared."""
    error: float
    """The largest error; in an exact check, the number of wrong gradients."""
    tolerance: float = TOLERANCE
    reason: str = ""
    """Why nothing was compared; "" if something was."""

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance, or nothing was compared; False for NaN."""
        return self.error <= self.tolerance
