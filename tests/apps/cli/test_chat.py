"""The chatbot, from training to the prompt."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.apps.cli import chat as command
from pellucid.core.errors import UsageError
from pellucid.tasks import Seq2SeqTask
from pellucid.training.events import Event, Stepped
from pellucid.training.experiment import train_run

SETTINGS = """
[tokenizer]
kind = "char"
[data]
train = ["pairs.tsv"]
max_tokens = 17
[model]
d_model = 12
num_attention_heads = 3
encoder_layers = 1
decoder_layers = 1
ffn_dim = 17
max_position_embeddings = 19
[training]
steps = 5
monitor = "bleu"
[evaluation]
metric = "bleu"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(SETTINGS, encoding="utf-8")
    pairs = [f"{a}{b}\t{b}{a}\n" for a in "abcdefg" for b in "abcdefg"]
    (tmp_path / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")
    return tmp_path


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What will be typed at the prompt."""
    waiting = ["ab", ""]

    def ask(prompt: str) -> str:
        if not waiting:
            raise EOFError
        return waiting.pop(0)

    monkeypatch.setattr("builtins.input", ask)
    return waiting


def chat() -> int:
    with pellucid.reference():
        return command.run(["--recipe", "tiny.toml", "--run", "runs/tiny"])


def test_it_trains_says_how_long_and_answers(
    place: Path, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat() == 0
    out = capsys.readouterr().out
    assert "Ctrl-C ends training early" in out
    assert "5 steps" in out
    assert not questions
    questions += ["ba"]
    assert chat() == 0
    talked = capsys.readouterr()
    assert "Ctrl-C ends training early" not in talked.out
    assert "runs/tiny: this run exists, so --recipe has no effect" in talked.err
    with pytest.raises(UsageError, match="--minutes has no effect"):
        command.run(["--recipe", "tiny.toml", "--run", "runs/tiny", "--minutes", "1"])
    with pytest.raises(UsageError, match="no recipe or TOML file 'nosuch'"):
        command.run(["--recipe", "nosuch", "--run", "runs/tiny"])


def test_search_and_sampling_are_chosen_for_the_talk_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks: list[Any] = []
    monkeypatch.setattr(command, "converse", lambda trained: talks.append(trained) or 0)
    with pellucid.reference():
        for options in (["--beam", "3"], [], ["--seed", "5", "--max-length", "4"]):
            assert command.run(["--recipe", "tiny.toml", "--run", "runs/tiny", *options]) == 0
    assert [talk.search.beam for talk in talks] == [3, 1, 1]
    assert [talk.sampling and talk.sampling.seed for talk in talks] == [None, None, 5]
    assert talks[2].sampling.max_length == 4
    with pytest.raises(UsageError, match="--run needs a folder"):
        command.run(["--run="])


def test_a_recipe_file_names_the_run_and_is_not_its_folder(
    place: Path, questions: list[str]
) -> None:
    with pellucid.reference():
        assert command.run(["--recipe", str(place / "tiny.toml")]) == 0
    assert not questions
    assert (place / "runs/tiny/model/model.safetensors").is_file()
    questions += ["ba"]
    with pellucid.reference():
        assert command.run(["--recipe", str(place / "runs/tiny")]) == 0
    assert not questions


def interrupted_by(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training get a signal after its second step."""

    def interrupt(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 2:
            os.kill(os.getpid(), number)

    def train(*args: object, listeners: list[object], **options: object) -> object:
        return train_run(*args, listeners=[*listeners, interrupt], **options)  # type: ignore[arg-type]

    monkeypatch.setattr("pellucid.apps.cli.train.train_run", train)


def test_an_interruption_keeps_the_model_and_goes_to_the_prompt(
    place: Path, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_by(signal.SIGINT, monkeypatch)
    assert chat() == 0
    assert not questions
    assert (place / "runs/tiny/model/model.safetensors").is_file()


def test_a_termination_ends_it_without_a_prompt_or_a_model(
    place: Path, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever ends the process does not wait for a talk; the run can be resumed."""
    interrupted_by(signal.SIGTERM, monkeypatch)
    assert chat() == 128 + signal.SIGTERM
    assert questions == ["ab", ""]
    assert list((place / "runs/tiny/checkpoints").iterdir())
    assert not (place / "runs/tiny/model").exists()


def test_ctrl_c_in_an_answer_leads_back_to_the_prompt(
    place: Path, questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Seq2SeqTask, *_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Seq2SeqTask, "stream", stop)
    assert chat() == 0
    assert not questions
