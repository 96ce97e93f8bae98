"""Options as they were typed."""

from __future__ import annotations

from collections.abc import Sequence

from pellucid.core.errors import UsageError


def refuse_repeated(arguments: Sequence[str], *options: str) -> None:
    """Raise `UsageError` where one of these stands twice: options that take several values at once.

    The argument parser would keep the last and drop the others without a word.

    >>> refuse_repeated(["--save", "a.html", "b.txt", "--", "--save"], "--save")
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names = [word.partition("=")[0] for word in arguments[:end]]
    for option in options:
        if (times := names.count(option)) > 1:
            raise UsageError(
                f"{option} is given {times} times, and only the last would count; give all its "
                "values after one"
            )
