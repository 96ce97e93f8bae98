"""Griffe's extension: the examples of a docstring become code blocks of the API reference."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^ *>>> .*(?:\n.*\S.*)*", re.MULTILINE)
"""Lines from `>>>` to the next blank line."""


def fenced(text: str) -> str:
    r"""Return a docstring with fences around its examples.

    >>> fenced("Add.\n\n>>> 1 + 1\n2")
    'Add.\n\n```pycon\n>>> 1 + 1\n2\n```'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found.group()}\n```", text)


class Examples(griffe.Extension):
    """Fences the examples of every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
