"""`pellucid.train` and `pellucid.load`: the same model, from Python."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.core.errors import UserError
from pellucid.training.events import Event, Stepped
from pellucid.training.run import read_settings

SMALL: dict[str, Any] = {
    "model": {"d_model": 16, "ffn_dim": 16, "encoder_layers": 1, "decoder_layers": 1},
    "training": {"validate_every": 5, "log_every": 5},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    words = ["".join(letters) for letters in itertools.product("abcd", repeat=3)]
    lines = [f"{word}\t{' '.join(word.upper())}\n" for word in words]
    Path("pairs.tsv").write_text("".join(lines), encoding="utf-8")
    with pellucid.reference():
        yield tmp_path


def test_a_recipe_is_trained_on_a_file_and_is_the_model_of_its_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events: list[Event] = []
    model = pellucid.train(
        "g2p-small", train="pairs.tsv", steps=10, listeners=[events.append], **SMALL
    )
    shown = capsys.readouterr().out
    assert "trained to step 10" in shown
    assert events[-1].step == 10
    settings = read_settings(Path("runs/g2p-small"))
    assert settings is not None
    assert (settings["training"]["steps"], settings["training"]["log_every"]) == (10, 5)
    assert settings["model"]["d_model"] == 16
    same = pellucid.load("runs/g2p-small")
    assert same.generate(["abc", "dad"]) == model.generate(["abc", "dad"])
    assert model.generate(["abc"], beam=2, max_length=3) == same.generate(
        ["abc"], beam=2, max_length=3
    )


def test_a_run_is_trained_longer_where_that_is_accepted() -> None:
    how: dict[str, Any] = {
        "train": ["pairs.tsv"],
        "valid": Path("pairs.tsv"),
        "run": "mine",
        "search": {"max_length": 3},  # an untrained model does not end
        **SMALL,
    }
    pellucid.train("g2p-small", steps=5, **how)
    with pytest.raises(UserError, match="mine: already holds a run"):
        pellucid.train("g2p-small", steps=10, **how)
    with pytest.raises(UserError, match=r"training.steps: 5 -> 10\n.*accept_changes=True"):
        pellucid.train("g2p-small", run="mine", steps=10, resume=True)
    pellucid.train("g2p-small", run="mine", steps=10, resume=True, accept_changes=True)
    settings = read_settings(Path("mine"))
    assert settings is not None
    assert (settings["training"]["steps"], settings["model"]["d_model"]) == (10, 16)


def test_a_run_begins_with_another_model() -> None:
    first = pellucid.train("g2p-small", train="pairs.tsv", steps=5, run="first", **SMALL)
    second = pellucid.train(
        "g2p-small", train="pairs.tsv", start="first", run="second", steps=5,
        training=SMALL["training"],
    )  # fmt: skip
    assert second.model.config == first.model.config
    assert Path("second/start").is_dir()


def test_other_data_than_the_recipes_are_those_of_the_command() -> None:
    """The corpus's description is not said of them, and settings without effect are refused."""
    own: dict[str, Any] = {"train": "pairs.tsv", "steps": 1, **SMALL}
    own["evaluation"] = {"metric": "none"}
    for run, given in (("own", {}), ("described", {"description": "Mine."})):
        pellucid.train("chatbot-ko", run=run, **own, **given)
        settings = read_settings(Path(run))
        assert settings is not None
        assert settings["description"] == given.get("description", "")
    with pytest.raises(UserError, match="held-out is for files of your own without validation"):
        pellucid.train("chatbot-ko", run="idle", valid="pairs.tsv", data={"held_out": 0.4}, **own)


def test_an_interrupt_saves_the_run() -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="the run is saved"):
        pellucid.train("g2p-small", train="pairs.tsv", steps=10, listeners=[stop], **SMALL)
    assert list(Path("runs/g2p-small/checkpoints").glob("step-*"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recipe": "g2p-smal"}, "no recipe or TOML file 'g2p-smal'"),
        ({"train": "none.tsv"}, "none.tsv: there is no such file"),
        ({"train": 5}, r"data.train: expected a list \(a path\), got 5"),
        ({"steps": "5"}, "training.steps: expected a whole number, got '5'"),
        ({"modle": {}}, "unknown setting modle"),
        ({"model": {"d_modl": 3}}, "did you mean d_model"),
        ({"training": 3}, "training: expected a table"),
        ({"train": "pairs.tsv", "device": "gpu"}, "--device gpu: expected cpu, cuda"),
        ({"train": "pairs.tsv", "precision": "half"}, "precision must be one of float32"),
        ({}, "no training data"),
    ],
)
def test_wrong_use_is_answered_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pellucid.train(given.pop("recipe", "g2p-small"), **given)
    assert not Path("runs").exists()
