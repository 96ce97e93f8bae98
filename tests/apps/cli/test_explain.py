"""`pellucid explain`: both languages, the same code and equations, an exit code that tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pellucid.apps.cli.explain import page
from pellucid.apps.cli.main import main
from pellucid.apps.teach.topic import Check
from pellucid.apps.teach.topics import TOPICS
from pellucid.core.language import Text


@pytest.mark.parametrize("name", TOPICS)
def test_languages_share_equations_code_and_values(name: str) -> None:
    english, korean = (list(page(TOPICS[name], language)) for language in ("en", "ko"))
    assert len(english) == len(korean)
    kept = [[line for line in lines if line.startswith("       ")] for lines in (english, korean)]
    assert kept[0] == kept[1]
    assert kept[0]
    for equation in TOPICS[name].equations:
        assert f"    {equation}" in english
        assert f"    {equation}" in korean


def test_topics_are_listed_without_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--lang", "ko"]) == 0
    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in TOPICS)
    assert "소프트맥스" in printed


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
    wrong = replace(TOPICS["softmax"], checks=(Check(Text("off", "차이"), lambda: 1.0, 0.5),))
    monkeypatch.setitem(TOPICS, "softmax", wrong)
    assert main(["explain", "softmax", "--lang", "en"]) == 1
    assert "WRONG 1.0e+00 (limit 5e-01)  off" in capsys.readouterr().out


def test_an_unknown_topic_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "atention"]) == 2
    assert "attention" in capsys.readouterr().err
