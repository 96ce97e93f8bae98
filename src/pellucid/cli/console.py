"""Where the commands print."""

from __future__ import annotations

from rich.console import Console


class Output(Console):
    """Standard output, coloured at a terminal, where only what we mark is coloured.

    What stands between colons stays words: a text of the user's may hold :warning: too.
    """

    def __init__(self) -> None:
        super().__init__(highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line, which ends quietly when its reader has gone."""
        raise BrokenPipeError
