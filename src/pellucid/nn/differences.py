"""The table of intended differences between `pellucid.nn` and torch.nn: `differences.md`.

docs/differences.md is the same page, error messages quote it, and tests/nn/test_differences.py
tests every row. The random comparison with torch leaves out these rows and nothing else.
"""

import re
from functools import cache
from importlib.resources import files


def page() -> str:
    """Return the text of `differences.md`."""
    return files("pellucid.nn").joinpath("differences.md").read_text(encoding="utf-8")


@cache
def table() -> dict[str, str]:
    """Return what Pellucid does, by subject."""
    rows = [line.strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| ")]
    return {subject: ours for subject, _, _, ours in rows[1:]}


def rule(name: str) -> str:
    """Return what Pellucid does, as error messages quote it.

    >>> rule("inplace")
    'arguments are never written to.'
    """
    return re.sub(r"^It is a \w+: ", "", table()[name])
