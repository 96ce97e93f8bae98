"""Docstrings begin with what a function does or a value is, not with a relative clause."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pellucid"


def docstrings(path: Path) -> list[str]:
    """The docstrings in a file, those under a value too."""
    return [
        node.value.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.stem)
def test_no_docstring_begins_with_what_or_of(path: Path) -> None:
    wrong = [text for text in docstrings(path) if re.match(r"\s*(What|Of) ", text)]
    assert not wrong, "name the thing: The factor of q·k, not What q·k is multiplied by"
