"""The film of a text in training: its frames, what they show, and that training is as without."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.view.samples import speaking

import pellucid
from pellucid.apps import view
from pellucid.apps.view.film import FILM, FRAME, due, film_page, filming, frames
from pellucid.apps.view.page import PRECISIONS, as_json, dumps
from pellucid.core.errors import UsageError, UserError
from pellucid.data.pairs import Splits, TextPair
from pellucid.models.config import CausalLMConfig, MaskedLMConfig, Seq2SeqConfig
from pellucid.system.weights import from_safetensors
from pellucid.training.checkpoint import newest_checkpoint
from pellucid.training.config import (
    DataConfig,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    load_recipe,
)
from pellucid.training.events import Ended, Event, Started, Stepped
from pellucid.training.experiment import train_run

LAYER: dict[str, Any] = {
    "d_model": 10,
    "num_attention_heads": 2,
    "ffn_dim": 13,
    "max_position_embeddings": 19,
}
SEQ2SEQ = Seq2SeqConfig(encoder_layers=1, decoder_layers=1, dropout=0.1, **LAYER)
TEXT, ANSWER = "abg", "GBA"


@pytest.fixture(scope="module", autouse=True)
def plainly() -> Iterator[None]:
    with pellucid.reference():
        yield


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    words = [a + b + c for a in "abcdefg" for b in "abcdefg" for c in "fg"]
    path = tmp_path_factory.mktemp("data") / "pairs.tsv"
    path.write_text("".join(f"{word}\t{word[::-1].upper()}\n" for word in words), "utf-8")
    return RunConfig(
        data=DataConfig(train=(path,), max_tokens=11, batch_tokens=101),
        tokenizer=TokenizerConfig("char"),
        model=SEQ2SEQ,
        training=TrainingConfig(steps=9, log_every=2, validate_every=5, validate_unit="steps"),
    )


def train(config: RunConfig, run: Path, text: str | None = TEXT, **options: Any) -> None:
    resume = options.get("resume", False)
    watch = filming(run, text, options.pop("answer", None), resume=resume)
    train_run(config, run, watch=watch, **options)


@pytest.fixture(scope="module")
def filmed(settings: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of these settings with a film; a test that changes it takes a copy."""
    run = tmp_path_factory.mktemp("filmed") / "run"
    train(settings, run)
    return run


def weights(run: Path) -> dict[str, np.ndarray]:
    path = run / "model" / "model.safetensors"
    return dict(from_safetensors(path.read_bytes(), path))


def steps_of(run: Path) -> list[int]:
    return [json.loads(path.read_bytes())["step"] for path in frames(run)]


def test_frames_are_dense_at_the_start_and_few() -> None:
    made = [step for step in range(40_001) if due(step)]
    assert made[:9] == [0, 1, 2, 4, 8, 16, 20, 25, 32]
    assert made[-1] == 32768
    assert 20 <= sum(step < 1200 for step in made) <= 40
    assert len(made) == 39
    ratios = np.divide(made[7:], made[6:-1])
    assert 1.2 < ratios.min() < ratios.max() < 1.3


def test_filming_changes_no_bit_of_training(
    settings: RunConfig, filmed: Path, tmp_path: Path
) -> None:
    unfilmed = tmp_path / "plain"
    train(settings, unfilmed, None)
    assert not frames(unfilmed)
    plain, other = weights(unfilmed), weights(filmed)
    assert plain.keys() == other.keys()
    for name in plain:
        assert plain[name].tobytes() == other[name].tobytes(), name
    without_times = [
        [
            {k: v for k, v in json.loads(line).items() if "second" not in k}
            for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()
        ]
        for run in (filmed, unfilmed)
    ]
    assert without_times[0] == without_times[1]
    # The settings know nothing of the film, so that they train again without it.
    configs = [(run / "config.toml").read_bytes() for run in (filmed, unfilmed)]
    assert configs[0] == configs[1]
    found = [newest_checkpoint(run / "checkpoints") for run in (filmed, unfilmed)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].settings == found[1].settings


def test_a_frame_is_the_record_of_that_step(
    settings: RunConfig, filmed: Path, tmp_path: Path
) -> None:
    """A run that ends after 4 steps has the model that a longer one had at its step 4."""
    assert steps_of(filmed) == [0, 1, 2, 4, 8, 9]
    train(replace(settings, training=replace(settings.training, steps=4)), tmp_path, None)
    frame = json.loads((filmed / FILM / FRAME.format(4)).read_bytes())
    assert (frame["text"], frame["answer"]) == (TEXT, ANSWER)
    model = pellucid.load(tmp_path)
    record = view.attention(model, TEXT, ANSWER).record
    direct = json.loads(dumps(as_json(record, precision=PRECISIONS[-1])))
    kept = frame["record"]
    for mine, other in zip(kept["maps"], direct["maps"], strict=True):
        assert mine == {k: v for k, v in other.items() if k not in ("dqueries", "dkeys")}
    for name in ("loss", "steps", "source", "target", "off", "title"):
        assert kept[name] == direct[name]
    assert kept["own"]
    assert model.generate([TEXT])[0].startswith(kept["own"])


def test_every_frame_has_the_same_rows_and_the_loss_falls(
    settings: RunConfig, tmp_path: Path
) -> None:
    longer = replace(settings.training, steps=70)
    train(replace(settings, training=longer), tmp_path / "run")
    film = [json.loads(path.read_bytes())["record"] for path in frames(tmp_path / "run")]
    assert len({str([m["q"]["shape"] + m["k"]["shape"] for m in one["maps"]]) for one in film}) == 1
    assert film[-1]["loss"] < film[0]["loss"]


def test_a_resumed_run_goes_on_with_its_film(
    settings: RunConfig, filmed: Path, tmp_path: Path
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    more = replace(settings, training=replace(settings.training, steps=17))
    train(more, whole)
    shutil.copytree(filmed, stopped)
    # As after a crash: frames, one of them half written, of steps that the checkpoint has not seen.
    shutil.copyfile(frames(stopped)[0], stopped / FILM / FRAME.format(16))
    (stopped / FILM / ".tmp-step-00000032.json").write_text("half")
    config = replace(load_recipe(str(stopped)), training=more.training)
    train(config, stopped, None, resume=True, accept_changes=True)
    assert steps_of(stopped) == [0, 1, 2, 4, 8, 9, 16, 17]
    assert steps_of(whole) == [0, 1, 2, 4, 8, 16, 17]
    for path in frames(whole):
        assert path.read_bytes() == (stopped / FILM / path.name).read_bytes()
    assert {path.name[:5] for path in (stopped / FILM).iterdir()} == {"step-"}


def test_a_resumed_run_keeps_its_text(filmed: Path) -> None:
    with pytest.raises(UsageError, match="'abg': leave `film` out"):
        filming(filmed, "aag", resume=True)
    assert filming(filmed, TEXT, resume=True) is not None
    assert filming(filmed, None) is None
    with pytest.raises(UsageError, match="`film_answer` is the answer of a text"):
        filming(filmed, None, "GBA")


def test_what_cannot_be_filmed_is_refused_before_anything_is_written(
    settings: RunConfig, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with pytest.raises(UsageError, match="'aba' is not in the data"):
        train(settings, run, "aba")
    with pytest.raises(UserError, match="more than the 19"):
        train(settings, run, TEXT * 9, answer="GBA")
    assert not run.exists()
    train(settings, run, "aba", answer="ABA")
    assert json.loads(frames(run)[0].read_bytes())["record"]["title"] == "aba → ABA"


def test_a_model_of_labels_is_filmed_with_the_label_of_the_data(tmp_path: Path) -> None:
    make = filming(tmp_path, "헤어졌어")
    assert make is not None
    film = make(pellucid.load("topics-ko"), Splits((TextPair("헤어졌어", ("love",)),)))
    film(Started(0, 0.0, 1, 1, None, None))
    record = json.loads(frames(tmp_path)[0].read_bytes())["record"]
    assert record["title"] == "헤어졌어 → love"
    assert [step["place"] for step in record["steps"]] == [-1]


def test_a_frame_too_large_for_a_page_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pairs = Splits((TextPair("가나", ("다라",)),))
    make = filming(tmp_path, "가나")
    assert make is not None
    make(speaking(), pairs)
    monkeypatch.setattr("pellucid.apps.view.film.LARGEST", 100)
    with pytest.raises(UserError, match="film a shorter text"):
        make(speaking(), pairs)


def test_a_model_that_diverges_gets_no_frame(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = speaking()
    make = filming(tmp_path, "가나", "다라")
    assert make is not None
    film = make(task, Splits(()))
    film(Started(0, 0.0, 1, 1, None, None))
    next(iter(task.model.parameters())).data[:] = np.nan
    with caplog.at_level(logging.WARNING):
        film(Stepped(1, 0.1, 1.0, 0.1, None))
    assert steps_of(tmp_path) == [0]
    assert "the film has no frame of step 1" in caplog.text


def test_the_last_step_has_a_frame_and_others_have_none(tmp_path: Path) -> None:
    make = filming(tmp_path, "가나", "다라")
    assert make is not None
    film = make(speaking(), Splits(()))
    events: list[Event] = [Started(0, 0.0, 1, 1, None, None), Stepped(3, 0.1, 1.0, 0.1, None)]
    for event in [*events, Ended(3, 0.1, "3 steps", 1.0)]:
        film(event)
    assert steps_of(tmp_path) == [0, 3]


@pytest.mark.parametrize(("model", "title"), [(CausalLMConfig, "GBA"), (MaskedLMConfig, "GBA")])
def test_a_decoder_or_an_encoder_alone_reads_the_text_itself(
    settings: RunConfig, tmp_path: Path, model: Any, title: str
) -> None:
    config = replace(settings, model=model(num_hidden_layers=1, **LAYER))
    train(config, tmp_path / "run", "GBA")
    record = json.loads(frames(tmp_path / "run")[-1].read_bytes())["record"]
    assert record["title"].strip() == title
    assert [step["label"][0] for step in record["steps"]][:3] == ["G", "B", "A"]
    if model is MaskedLMConfig:
        with pytest.raises(UsageError, match="a token for each"):
            train(config, tmp_path / "other", "G[MASK]A")


def test_the_page_holds_every_frame_and_the_losses(filmed: Path) -> None:
    page = film_page(filmed, "ko")
    found = page.split('<script id="film" type="application/json">')[1].split("</script>")[0]
    film = json.loads(found)
    assert [frame["step"] for frame in film["frames"]] == steps_of(filmed)
    assert [step for step, _ in film["training"]] == [2, 4, 6, 8, 9]
    assert [step for step, _ in film["held_out"]] == [5, 9]
    last = json.loads(frames(filmed)[-1].read_bytes())["record"]
    assert film["frames"][-1]["record"]["maps"] == last["maps"]
    assert '"language":"ko"' in page


def test_a_damaged_frame_is_named(filmed: Path, tmp_path: Path) -> None:
    shutil.copytree(filmed, tmp_path / "run")
    path = frames(tmp_path / "run")[1]
    for content in ("{", "[]", '{"format": 2}', '{"format": 2, "record": {}}'):
        path.write_text(content)
        with pytest.raises(UserError, match=r"step-00000001\.json: not a frame"):
            film_page(tmp_path / "run")
