from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid.apps.cli.demo import _free, _spread, demo, program
from pellucid.core.errors import UsageError, UserError
from pellucid.data.corpora import find_corpus
from pellucid.data.pairs import Splits
from pellucid.training.config import RunConfig


def test_the_demo_from_end_to_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    corpus: Callable[[str], Splits],
) -> None:
    corpus("chatterbot-ko"), corpus("g2p-en")
    monkeypatch.chdir(tmp_path)
    assert demo(chat_minutes=0.001, g2p_minutes=0.02) == 0
    out = capsys.readouterr().out
    for words in ("Memorising", "Generalising", "too early on this machine", "never seen"):
        assert words in " ".join(out.split())
    assert "generate runs/chat " in out
    assert "generate runs/g2p " in out
    for name in ("chat", "g2p"):
        assert (tmp_path / "runs" / name / "model" / "model.safetensors").is_file()


def test_missing_data_of_the_second_model_end_it_before_the_first_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PELLUCID_DATA", str(tmp_path))
    lexicon = tmp_path / find_corpus("g2p-en").files[0].path
    lexicon.parent.mkdir()
    lexicon.write_bytes(b"another")
    with pytest.raises(UserError, match=r"misaki.*another file than expected"):
        demo()
    assert not (tmp_path / "runs").exists()


def test_a_wrong_time_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="minutes must be above 0"):
        demo(g2p_minutes=-1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("interrupted", ["chat", "g2p"])
def test_an_interruption_ends_it_after_that_training(
    interrupted: str, signal: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second model is not trained, and nothing is shown of one whose training was cut off."""
    asked, shown = [], []

    def train(config: RunConfig, folder: Path) -> SimpleNamespace:
        asked.append(folder.name)
        ended = signal if folder.name == interrupted else None
        return SimpleNamespace(interrupted=ended, trained=None, pairs=Splits(()))

    monkeypatch.setattr("pellucid.apps.cli.demo.read_data", lambda data: None)
    monkeypatch.setattr("pellucid.apps.cli.demo.show_run", train)
    monkeypatch.setattr("pellucid.apps.cli.demo._show_chat", lambda *_: shown.append("chat"))
    assert demo(folder=tmp_path) == code
    assert [*shown, interrupted] == asked


def test_a_second_demo_takes_the_next_folder(tmp_path: Path) -> None:
    assert _free(tmp_path / "chat") == tmp_path / "chat"
    (tmp_path / "chat").mkdir()
    assert _free(tmp_path / "chat") == tmp_path / "chat-2"


def test_items_are_taken_from_the_whole_sequence() -> None:
    assert _spread(range(10), 3) == [0, 3, 6]
    assert _spread(range(2), 5) == [0, 1]


def test_the_commands_to_go_on_are_those_of_this_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / ".venv" / "bin" / "pellucid"
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert program() == ".venv/bin/pellucid"
    monkeypatch.setattr(shutil, "which", lambda name: str(script))
    assert program() == "pellucid"
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "argv", ["/src/pellucid/__main__.py"])
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(shutil, "which", lambda name: str(python.resolve()))
    assert program() == ".venv/bin/python -m pellucid"
    monkeypatch.setattr(shutil, "which", lambda name: str(python))
    assert program() == "python -m pellucid"
