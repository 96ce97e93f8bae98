"""A release states one version everywhere, and says what it brings."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import badges
import release

ROOT = Path(__file__).parents[1]
STATED = ("CHANGELOG.md", "CITATION.cff", "deploy/kubernetes.yaml", "pyproject.toml",
          "src/pellucid/__init__.py", "docs/badges/version.svg")  # fmt: skip


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files that state a version."""
    for name in STATED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for module in (release, badges):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(badges, "FOLDER", tmp_path / "docs" / "badges")
    monkeypatch.setattr(release, "_git", lambda *words: b"")
    text = (tmp_path / "CHANGELOG.md").read_text("utf-8")
    if release.UNRELEASED not in text:
        release.set_version("7.0.0.dev0", "2031-02-03")
    return tmp_path


def stating(folder: Path, words: str) -> set[str]:
    return {name for name in STATED if words in (folder / name).read_text("utf-8")}


def test_a_release_is_stated_wherever_users_read_a_version(copy: Path) -> None:
    assert "development version" in str(release.refusal())
    release.set_version("7.8.9", "2031-02-03")
    assert stating(copy, "7.8.9") == set(STATED) - {"pyproject.toml"}
    assert stating(copy, ".dev") <= {"CHANGELOG.md"}
    assert release.version() == badges.released() == "7.8.9"
    changelog = (copy / "CHANGELOG.md").read_text("utf-8")
    assert "\n## 7.8.9 - 2031-02-03\n" in changelog
    assert release.UNRELEASED not in changelog
    assert release.refusal() is None
    with pytest.raises(SystemExit, match="to close as 7"):
        release.set_version("7.9.0", "2031-02-04")


def test_what_follows_a_release_is_stated_in_the_package_alone(copy: Path) -> None:
    release.set_version("7.8.9", "2031-02-03")
    release.set_version("7.9.0.dev0", "2031-02-04")
    assert stating(copy, "7.9.0.dev0") == {"src/pellucid/__init__.py"}
    assert badges.released() == "7.8.9"
    changelog = (copy / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## .*", changelog, re.MULTILINE)[:2] == [
        "## Unreleased", "## 7.8.9 - 2031-02-03",
    ]  # fmt: skip


def test_no_release_is_made_of_a_changed_checkout(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.set_version("7.8.9", "2031-02-03")
    monkeypatch.setattr(release, "_git", lambda *words: b" M README.md\n")
    assert "README.md" in str(release.refusal())
    (copy / "CHANGELOG.md").write_text("## 7.8.9\n", "utf-8")
    assert "no section 7.8.9 with a date" in str(release.refusal())


def test_a_version_of_another_form_is_refused(copy: Path) -> None:
    with pytest.raises(SystemExit, match="expected a version such as"):
        release.set_version("v7.8", "2031-02-03")


def test_the_bill_of_materials_has_what_the_package_brings() -> None:
    document = json.loads(release.sbom())
    assert release.sbom() == release.sbom()
    components = {each["name"]: each for each in document["components"]}
    assert {"numpy", "safetensors", "numba", "llvmlite", "tyro", "starlette"} <= set(components)
    assert "pytest" not in components
    assert all(each["licenses"] for each in components.values())
    known = {each["bom-ref"] for each in components.values()}
    own, *others = document["dependencies"]
    assert {ref.split("/")[1].split("@")[0] for ref in own["dependsOn"]} >= {"numpy", "numba"}
    assert {each["ref"] for each in others} == known
    assert known.issuperset(ref for each in document["dependencies"] for ref in each["dependsOn"])
    assert not [name for name, each in components.items() if "GPL" in str(each["licenses"])]
