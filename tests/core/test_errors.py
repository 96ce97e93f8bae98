import re
import shlex
import sys
from importlib.metadata import requires
from pathlib import Path
from types import SimpleNamespace

import pytest

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
    (tmp_path / "lackingruntime.py").write_text("import lacking")
    for module, why in (
        ("broken_here", "libwide.so: no such file"),
        ("lacking_here", "No module named 'pellucid_has_no_such_module'"),
        ("lackingruntime", "No module named 'lacking'"),  # the beginning of its name
    ):
        said = re.escape(f"install the extra ({why})")
        with pytest.raises(UserError, match=f"^{said}$"):
            optional(module, "install the extra")


def test_the_packages_of_an_extra_are_installed_for_the_python_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command() -> list[str]:
        with pytest.raises(UserError, match=r"^this needs it: ") as raised:
            optional("pellucid_has_no_such_module", "this needs it", extra="serve")
        return shlex.split(str(raised.value).removeprefix("this needs it: "))

    pip = [sys.executable, "-m", "pip", "install"]
    known = ["numpy>=2", "scipy>=1; extra == 'lab'", "starlette>=0.45; extra == 'serve'"]
    known += ["uvloop>=0.20; (platform_system != 'Windows') and extra == 'serve'"]
    there: list[SimpleNamespace] = []
    monkeypatch.setattr("importlib.metadata.requires", lambda name: known)
    monkeypatch.setattr("importlib.metadata.distributions", lambda: there)
    packages = ["starlette>=0.45", 'uvloop>=0.20; (platform_system != "Windows")']
    assert command() == [*pip, *packages]
    there.append(SimpleNamespace(name="Starlette"))
    assert command() == [*pip, packages[1]]
    there.append(SimpleNamespace(name="uvloop"))  # too old, say
    assert command() == [*pip, *packages]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: requires("no-such-package"))
    assert command() == [*pip, "pellucid[serve]"]
