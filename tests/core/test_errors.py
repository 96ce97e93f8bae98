import re
from pathlib import Path

import pytest

from pellucid.core import errors
from pellucid.core.errors import UsageError, UserError, optional


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
    (tmp_path / "lacking_here.py").write_text("import pellucid_has_no_such_module")
    for module, why in (
        ("broken_here", "libwide.so: no such file"),
        ("lacking_here", "No module named 'pellucid_has_no_such_module'"),
    ):
        said = re.escape(f"install the extra ({why})")
        with pytest.raises(UserError, match=f"^{said}$"):
            optional(module, "install the extra")


def test_an_extra_is_installed_from_the_checkout_and_else_from_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message() -> str:
        with pytest.raises(UserError) as raised:
            optional("pellucid_has_no_such_module", "this needs it", extra="lab")
        return str(raised.value)

    module = tmp_path / "src" / "pellucid" / "core" / "errors.py"
    monkeypatch.setattr(errors, "__file__", str(module))
    assert message() == "this needs it: pip install 'pellucid[lab]'"
    (tmp_path / "pyproject.toml").touch()
    assert message() == f"this needs it: pip install '{tmp_path}[lab]'"
    monkeypatch.chdir(tmp_path)
    assert message() == "this needs it: pip install '.[lab]'"
