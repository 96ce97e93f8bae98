"""Whether torchrun starts a process again after one that ended with an error.

It does so after every end but a good one. A worker that died is replaced that way; after an error,
which would only come again, the replacement ends before it has imported anything.
"""

import os
from contextlib import suppress
from pathlib import Path

REPORT = "TORCHELASTIC_ERROR_FILE"  # …/attempt_0/1/error.json: torchrun's report on one worker


def _mark() -> Path | None:
    report = os.environ.get(REPORT)
    return Path(report).parents[2] / "over" if report else None


def end_all_attempts() -> None:
    """Note that starting this machine's workers again would not help."""
    if (mark := _mark()) is not None:
        with suppress(OSError):
            mark.touch()


def is_over() -> bool:
    """Return whether an attempt before this one ended with an error.

    >>> is_over()
    False
    """
    mark = _mark()
    return mark is not None and mark.exists()
