"""The processes that train one model together; `Workers` is a process alone.

`pellucid.training.torch_workers` has those that exchange numbers through PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from pellucid.core.errors import UserError

Array = np.ndarray
Wait = Callable[[], None]
"""What an exchange that was begun returns: call it before its numbers are read."""


class LostWorkerError(UserError):
    """The connection to other workers is lost: one of them died, hangs or has failed."""


class Workers:
    """A process that trains alone: every exchange gives it its own numbers back.

    A subclass is one of several processes. All of them call the same exchanges in the same order.

    >>> Workers().share(["from the first worker"])
    ['from the first worker']
    """

    rank: int = 0
    """Which of the workers this process is, from 0; the first one writes files and prints."""
    size: int = 1
    """How many workers there are."""
    begun: bool = False
    """Whether the run was begun by workers that this process replaces."""

    def __init__(self) -> None:
        self.sent = 0
        """Bytes that this process has sent in exchanges of arrays."""
        self.waited = 0.0
        """Seconds that this process has waited for exchanges of arrays."""

    def deal(self, send: Array, sent: Sequence[int], receive: Array, got: Sequence[int]) -> Wait:
        """Begin to send to every worker its slice of `send`, and to receive the same of each.

        sent, got: how many numbers go to, and come from, each worker; `receive` has them in order.
        """
        receive[...] = send
        return lambda: None

    def collect(self, whole: Array, own: Array) -> Wait:
        """Begin to put the slices of all workers, of one length, into `whole`, in their order."""
        if whole.ctypes.data != own.ctypes.data:
            whole[...] = own
        return lambda: None

    def rows(self, own: Array, *, patient: bool = False) -> Array:
        """Return the vectors of all workers, which have one length, as rows.

        patient: wait for them as long as it takes, where the work before has no limit of time.
        """
        return own[None]

    def broadcast(self, array: Array) -> None:
        """Give every worker the first one's numbers, in place."""

    def share(self, value: Any, *, patient: bool = False) -> Any:
        """Return the first worker's value, which JSON can hold; `patient` is as in `rows`."""
        return json.loads(json.dumps(value))

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers, which JSON can hold; wait as long as it takes."""
        return [json.loads(json.dumps(value))]

    def begin(self) -> None:
        """Note that the run has begun: whoever replaces this process goes on with it."""

    def close(self) -> None:
        """Leave the other workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()

    def agree(self, what: str, value: dict[str, Any]) -> None:
        """Raise `UserError` on every worker unless all of them have the same values.

        what: what is compared, for the message, which names who differs and in what.
        """
        first, *others = self.gather(value)
        for rank, other in enumerate(others, 1):
            if other != first:
                found = "\n  ".join(
                    f"{name}: {first.get(name)} on worker 0, {other.get(name)} on worker {rank}"
                    for name in sorted({*first, *other})
                    if first.get(name) != other.get(name)
                )
                raise UserError(
                    f"worker {rank} has other {what} than worker 0:\n  {found}\n"
                    "All workers need the same; nothing was changed"
                )
