"""What a command keeps from one call to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.apps.cli.kept import keep, read_kept
from pellucid.core.errors import UserError


def test_a_table_is_read_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    assert read_kept(path, hints=int) == {}
    keep(path, {"γ − 1": {"hints": 2, "solved": True}})
    assert read_kept(path, hints=int) == {"γ − 1": {"hints": 2}}
    assert "γ" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', '{"a": {}}', '{"a": {"hints": "x"}}'])
def test_a_file_that_is_no_such_table_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"a\.json cannot be read; delete it to begin anew"):
        read_kept(path, hints=int)
