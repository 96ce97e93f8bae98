"""The table of intended differences between `pellucid.nn` and torch.nn, read from `differences.md`.

docs/differences.md is the same text, error messages quote it, and tests/nn/test_differences.py
tests every row. The randomised comparison with torch excludes these differences and no others.
"""

import re
from functools import cache
from importlib.resources import files


def page() -> str:
    """Return the text of `differences.md`."""
    return files("pellucid.nn").joinpath("differences.md").read_text(encoding="utf-8")


@cache
def table() -> dict[str, str]:
    """Return Pellucid's behaviour, the last column of the table, by subject."""
    rows = [line.strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| ")]
    return {subject: ours for subject, _, _, ours in rows[1:]}


def rule(name: str) -> str:
    """Return Pellucid's behaviour for a subject of the table, to be quoted in an error message.

    The words "It is a ValueError: " and the like, which some rows begin with, are left out.

    >>> rule("inplace")
    'arguments are never written to.'
    """
    return re.sub(r"^It is a \w+: ", "", table()[name])
