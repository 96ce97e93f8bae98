"""Find out which kernel computed each op, or why none did."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from pellucid.core.vjp import Call, Observing, Result, Run, composite


class Choice(NamedTuple):
    """The kernel that computed an op, or the reason why none did."""

    op: str
    kernel: str | None
    """The module of the kernel, None for the reference op."""
    reason: str
    """Why no kernel took the call."""


@dataclass
class Choices(Observing):
    """Records which kernel computes each op inside `with Choices() as choices:`.

    `print(choices)` shows a table. `calls` has, for every `Choice`, the number of calls by each
    layer, under the layer's path. Observing does not change which kernel runs.

    >>> import numpy as np
    >>> from pellucid import nn
    >>> with Choices() as choices:
    ...     y = nn.Linear(3, 2)(np.ones((5, 3)))
    >>> print(choices)
    op      calls  computed by
    linear      1  reference op: expects float32 arrays in one piece of memory, more than 8 rows
    """

    calls: dict[Choice, Counter[str]] = field(default_factory=dict)

    def __call__(self, call: Call, run: Run) -> Result:
        """Run one call and count which kernel took it."""
        result = run(call)
        if call.op is not composite:
            choice = Choice(call.op.__name__, call.kernel, call.declined)
            self.calls.setdefault(choice, Counter())[call.path] += 1
        return result

    def __str__(self) -> str:
        rows = [("op", "calls", "computed by")]
        for choice, paths in sorted(self.calls.items(), key=str):
            who = choice.kernel or f"reference op: {choice.reason}"
            rows.append((choice.op, str(paths.total()), who))
        first, second = (max(len(row[i]) for row in rows) for i in range(2))
        return "\n".join(f"{op:{first}}  {calls:>{second}}  {who}" for op, calls, who in rows)
