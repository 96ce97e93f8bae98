"""`pellucid explain`: both languages, the same code and equations, an exit code that tells."""

from __future__ import annotations

import pytest

from pellucid.apps.cli import explain
from pellucid.apps.cli.explain import page
from pellucid.apps.cli.main import main
from pellucid.apps.teach.checks import CHECKS, Check
from pellucid.apps.teach.topic import TOPICS, read


@pytest.mark.parametrize("name", TOPICS)
def test_languages_share_equations_code_and_values(name: str) -> None:
    english, korean = (list(page(name, language)) for language in ("en", "ko"))
    assert len(english) == len(korean)
    kept = [[line for line in lines if line.startswith("       ")] for lines in (english, korean)]
    assert kept[0] == kept[1]
    assert kept[0]
    formulas = [block.text for block in read(name, "en") if block.kind == "formula"]
    assert formulas
    for formula in "\n".join(formulas).split("\n"):
        assert f"    {formula}" in english
        assert f"    {formula}" in korean


def test_links_are_printed_as_the_names_of_topics() -> None:
    lines = list(page("softmax", "ko"))
    assert lines[-2:] == ["함께 보기", "  attention, cross_entropy"]


def test_topics_are_listed_without_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lang", "ko"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in TOPICS)
    assert "레이어 정규화" in printed


def test_the_locale_selects_the_language(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PELLUCID_LANG")
    monkeypatch.setenv("LC_ALL", "ko_KR.UTF-8")
    assert main(["explain", "softmax"]) == 0
    assert "순전파" in capsys.readouterr().out
    assert main(["explain", "softmax", "--lang", "en"]) == 0
    assert "Forward" in capsys.readouterr().out


def test_a_failed_check_gives_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHECKS, "softmax_jacobian", Check(lambda: 1.0, 0.5))
    monkeypatch.setattr(explain, "measured", explain.measured.__wrapped__)
    assert main(["explain", "softmax", "--lang", "en"]) == 1
    assert "WRONG 1.0e+00 (limit 5e-01)  against diag(p) − p pᵀ" in capsys.readouterr().out


def test_an_unknown_topic_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "atention"]) == 2
    assert "attention" in capsys.readouterr().err
