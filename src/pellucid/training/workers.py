"""The processes that train one model together; `Workers` is a process alone.

`pellucid.training.torch_workers` has those that exchange numbers through PyTorch.
"""

import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from pellucid.core.errors import UserError
from pellucid.core.settings import changes

Array = np.ndarray


class LostWorkerError(UserError):
    """The connection to other workers is lost: one of them died, hangs or has failed."""


class Workers:
    """A process that trains alone: every exchange returns the numbers that were put in.

    A subclass is one of several processes. All of them call the same exchanges in the same order.
    `patient` is for an exchange after work that has no limit of time: wait as long as it takes.

    >>> Workers().broadcast_json(["from the first worker"])
    ['from the first worker']
    """

    rank: int = 0
    """Which of the workers this process is, from 0; the first one writes files and prints."""
    size: int = 1
    """How many workers there are."""
    begun: bool = False
    """Whether the run was begun by workers that this process replaces."""

    def all_to_all(self, send: Array, got: Sequence[int]) -> Array:
        """Send every worker its slice of a vector; return the slices received, in order.

        send: as many slices of one length as there are workers. got: the length of each worker's.
        """
        return send

    def all_gather(self, own: Array, *, patient: bool = False) -> Array:
        """Return the vectors of all workers, which have one length, as rows."""
        return own[None]

    def broadcast(self, arrays: Sequence[Array]) -> None:
        """Give every worker the first one's numbers, in place."""

    def broadcast_json(self, value: Any, *, patient: bool = False) -> Any:
        """Return the first worker's value, which JSON can hold."""
        return self.gather_json(None if self.rank else value, patient=patient)[0]

    def gather_json(self, value: Any, *, patient: bool = True) -> list[Any]:
        """Return the values of all workers, which JSON can hold."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8)
        sizes = self.all_gather(np.array([len(text)]), patient=patient)[:, 0]
        padded = np.zeros(int(sizes.max()), np.uint8)
        padded[: len(text)] = text
        rows = self.all_gather(padded, patient=patient)
        return [json.loads(row[:n].tobytes()) for row, n in zip(rows, sizes, strict=True)]

    def begin(self) -> None:
        """Note that the run has begun: a process that replaces this one goes on with it."""

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
        first, *others = self.gather_json(value)
        for rank, other in enumerate(others, 1):
            if other != first:
                found = "\n  ".join(changes(first, other))
                raise UserError(
                    f"worker 0 and worker {rank} have other {what}:\n  {found}\n"
                    "All workers need the same; nothing was changed"
                )
