import re
from pathlib import Path

import pytest

from pellucid.errors import UsageError, UserError, optional


def test_a_module_that_is_not_installed_raises_what_to_install() -> None:
    with pytest.raises(UserError, match=r"^install the extra$"):
        optional("pellucid_has_no_such_module", "install the extra")
    with pytest.raises(UsageError, match=r"^install it$"):
        optional("pellucid_has_no_such_module", "install it", UsageError)


def test_a_module_that_cannot_be_imported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_here.py").write_text('raise ImportError("libwide.so: no such file")')
    monkeypatch.syspath_prepend(tmp_path)
    said = re.escape("install the extra (libwide.so: no such file)")
    with pytest.raises(UserError, match=f"^{said}$"):
        optional("broken_here", "install the extra")
