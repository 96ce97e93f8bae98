"""The trained models that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.apps.cli.main import main
from pellucid.tasks.folder import shipped_models

ROOT = Path(__file__).parents[3]
ANSWERS = {
    "chat-ko": ("안녕", "안녕하세요."),
    "g2p-demo": ("attention", "ətˈɛnʧən"),
    "g2p-en": ("transformer", "tɹænsfˈɔɹməɹ"),
    "topics-ko": ("헤어졌어", "parting"),
}


def test_every_model_has_a_test_and_a_notice() -> None:
    assert shipped_models().keys() == ANSWERS.keys()
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert all(f"- {name}: " in notice for name in ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_name_stands_where_a_folder_may(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    text, answer = ANSWERS[name]
    assert pellucid.load(name).generate([text]) == [answer]
    assert main(["generate", name, text]) == 0
    assert capsys.readouterr().out.startswith(answer)


def test_they_are_listed_with_what_they_score(capsys: Any) -> None:
    assert main(["models"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "topics-ko 0.5 MB accuracy 8" in shown


def test_a_name_that_is_none_is_answered_with_those_there_are(capsys: Any) -> None:
    assert main(["generate", "topic-ko", "x"]) == 1
    assert "did you mean topics-ko" in capsys.readouterr().err
