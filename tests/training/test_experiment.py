"""A run from its settings, stopped and gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.core.errors import UsageError, UserError
from pellucid.core.settings import to_mapping
from pellucid.data.corpora import find_corpus
from pellucid.data.pairs import Splits, TextPair
from pellucid.generation import SearchConfig
from pellucid.models.config import CausalLMConfig, ClassifierConfig, MaskedLMConfig, Seq2SeqConfig
from pellucid.system.language import Text, plural
from pellucid.training.config import (
    DataConfig,
    EvaluationConfig,
    RunConfig,
    TokenizerConfig,
    TrainingConfig,
    load_recipe,
)
from pellucid.training.events import Event, Validated
from pellucid.training.experiment import (
    Outcome,
    _longer,
    card,
    make_tokenizers,
    read_material,
    scoring,
    train_run,
)
from pellucid.training.run import read_metrics, read_settings
from pellucid.training.trainer import Result

LAYER = {"d_model": 10, "num_attention_heads": 2, "ffn_dim": 13, "max_position_embeddings": 19}


@pytest.fixture(autouse=True)
def plainly() -> Iterator[None]:
    with pellucid.reference():
        yield


def write_pairs(path: Path, letters: str) -> None:
    """Splits of words in which the first of the letters is the most frequent one, and so on."""
    words = [
        a + b + letters[(i + j) // 7] for i, a in enumerate(letters) for j, b in enumerate(letters)
    ]
    path.write_text("".join(f"{word}\t{word[::-1].upper()}\n" for word in words), "utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "pairs.tsv", "abcdefg")
    return tmp_path / "pairs.tsv"


def settings(data: Path, **changes: Any) -> RunConfig:
    config = RunConfig(
        data=DataConfig(train=(data,), max_tokens=11, batch_tokens=101),
        tokenizer=TokenizerConfig("char"),
        model=Seq2SeqConfig(encoder_layers=1, decoder_layers=1, **LAYER),
        training=TrainingConfig(steps=5, validate_every=3, validate_unit="steps"),
        evaluation=EvaluationConfig("error_rates"),
    )
    return replace(config, **changes)


def alone(kind: Any) -> dict[str, Any]:
    """One half of a Transformer instead of both."""
    return {"model": kind(num_hidden_layers=1, **LAYER), "evaluation": EvaluationConfig()}


def go_on(folder: Path, **changes: Any) -> Outcome:
    config = load_recipe(str(folder))
    changes = {"training": replace(config.training, steps=7)} | changes
    return train_run(replace(config, **changes), folder, resume=True, accept_changes=True)


def tokenizers(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*tokenizer.json")}


TWO, ONE = ["target_tokenizer.json", "tokenizer.json"], ["tokenizer.json"]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, TWO),
        ({"tokenizer": TokenizerConfig("char", shared=True)}, ONE),
        (alone(CausalLMConfig), ONE),
        (alone(MaskedLMConfig), ONE),
    ],
)
def test_other_data_do_not_change_what_the_tokens_of_a_run_are(
    data: Path, tmp_path: Path, changes: dict[str, Any], names: list[str]
) -> None:
    run = tmp_path / "run"
    train_run(settings(data, **changes), run)
    before = tokenizers(run)
    assert sorted(before) == names
    assert tokenizers(run / "model") == before
    write_pairs(data, "gfedcba")
    with pytest.raises(UserError, match=r"training data is not what.*`accept_changes`"):
        train_run(load_recipe(str(run)), run, resume=True)
    go_on(run)
    assert tokenizers(run) == tokenizers(run / "model") == before


@pytest.mark.parametrize(
    ("changes", "targets"), [(alone(ClassifierConfig), {"x", "y"}), ({}, {"x", "y "})]
)
def test_a_blank_behind_a_label_makes_no_other_label(
    data: Path, changes: dict[str, Any], targets: set[str]
) -> None:
    path = data.with_suffix(".jsonl")
    rows = [{"source": str(n), "target": "y " if n % 2 else "x"} for n in range(97)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_material(settings(path, **changes))
    assert {target for pair in read.train for target in pair.targets} == targets


def test_texts_that_all_have_one_label_are_named(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    classifier = alone(ClassifierConfig)
    data.write_text("".join(f"{n}\t{'xy'[n % 2]}\n" for n in range(97)))
    read_material(settings(data, **classifier))
    assert not caplog.messages
    data.write_text("".join(f"{n}\tx\n" for n in range(97)))
    read_material(settings(data, **classifier))
    assert caplog.messages == ["all texts have one label, 'x': nothing to learn"]


def test_the_settings_of_a_run_begin_a_new_one_on_other_data(data: Path, tmp_path: Path) -> None:
    run, new, other = tmp_path / "run", tmp_path / "new", tmp_path / "other.tsv"
    train_run(settings(data), run)
    write_pairs(other, "gfedcba")
    config = load_recipe(str(run))
    train_run(replace(config, data=replace(config.data, train=(other,))), new)
    assert load_recipe(str(new)).data.sha256 not in ("", config.data.sha256)
    train_run(load_recipe(str(new)), new, resume=True)


def test_other_tokenizers_are_another_run(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(settings(data), run)
    before = read_settings(run)
    with pytest.raises(UserError, match=r"tokenizer\.kind: char -> bpe\n.*a new run"):
        go_on(run, tokenizer=TokenizerConfig("bpe"))
    assert read_settings(run) == before


def test_each_side_may_have_a_tokenizer_of_its_own_kind(caplog: pytest.LogCaptureFixture) -> None:
    config = RunConfig(tokenizer=TokenizerConfig("char", "word", normalise=("nfd",)))
    rows = [("값이", "k a ps i"), ("한국", "h a n g u k"), ("é", "e")]
    splits = Splits(tuple(TextPair(word, (phones,)) for word, phones in rows))
    source, target = make_tokenizers(config, splits)
    assert (source.kind, target.kind) == ("char", "word")
    assert source.encode("갑") == source.encode("값")[:2] + source.encode("\u11b8")
    assert target.tokens(target.encode("ps  k")) == ["ps", "k"]
    assert not caplog.records
    assert not caplog.text
    noted = Splits(tuple(TextPair(w, (f"{p} {mark} foreign",)) for w, p in rows for mark in "#;"))
    make_tokenizers(config, noted)
    assert "6 of 6 texts have what looks like a comment" in caplog.text
    make_tokenizers(config, Splits(tuple(TextPair(w, (p.replace(" ", ""),)) for w, p in rows)))
    assert "none of 3 texts has a space" in caplog.text
    assert "3 different ones" in caplog.text
    assert "set tokenizer.target_kind to char" in caplog.text
    caplog.clear()
    for count, warned in ((9, True), (10, False)):  # of each form
        forms = Splits(tuple(TextPair(str(n), (f"form{n % 3}",)) for n in range(3 * count)))
        make_tokenizers(config, forms)
        assert ("has a space" in caplog.text) == warned
        caplog.clear()


def test_another_score_to_monitor_has_another_best(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    wer = TrainingConfig(steps=5, validate_every=3, validate_unit="steps", monitor="wer")
    train_run(settings(data, training=wer), run)  # it is 1 at most, which no loss here comes near
    go_on(run, training=replace(wer, monitor="loss", steps=7))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [e for e in map(json.loads, lines) if e["event"] in ("validated", "chosen")]
    assert [e["best"] for e in events if e["step"] == 6] == [True]
    assert events[-1]["steps"] != [5]


PER = TrainingConfig(steps=5, monitor="per")


@pytest.mark.parametrize(
    ("same", "changes"),
    [
        (True, {}),
        (True, {"training": replace(PER, steps=7, patience=2)}),
        (True, {"training": PER, "seed": 2}),
        (False, {"training": replace(PER, monitor="wer")}),
        (False, {"training": replace(PER, higher_is_better=True, monitor="mine")}),
        (False, {"data": DataConfig(corpus="g2p-en", max_tokens=5)}),
        (False, {"evaluation": EvaluationConfig("error_rates", pairs=3)}),
        (False, {"search": SearchConfig(beam=2)}),
    ],
)
def test_what_the_best_score_depends_on(data: Path, same: bool, changes: dict[str, Any]) -> None:
    before = settings(data, training=PER)
    now = replace(before, **changes)
    aside = (TextPair("a", ("b",)),)
    assert (scoring(before, aside) == scoring(now, aside)) is same
    assert scoring(before, aside) != scoring(before, (TextPair("a", ("b", "c")),))


def test_a_loss_does_not_depend_on_the_search(data: Path) -> None:
    before, aside = settings(data), (TextPair("a", ("b",)),)
    now = replace(before, search=SearchConfig(beam=2), evaluation=EvaluationConfig("none"))
    assert scoring(before, aside) == scoring(now, aside)


def test_a_resumed_run_stores_its_weights_as_it_began(data: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, Validated):
            raise BrokenPipeError

    run = tmp_path / "run"
    with pytest.raises(BrokenPipeError):
        train_run(settings(data), run, weights="int8", listeners=[stop])
    said: list[Text] = []
    for weights, stored in ((None, "int8"), (None, "int8"), ("float16", "float16")):
        train_run(load_recipe(str(run)), run, resume=True, weights=weights, say=said.append)
        assert said[-1].en.endswith(f"weights stored as {stored}")


def test_scores_of_other_validation_data_are_not_compared(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.training.experiment.STILL_IMPROVES", 0)
    write_pairs(valid := tmp_path / "valid.tsv", "gfa")
    config, run = settings(data), tmp_path / "run"
    said: list[Text] = []

    def until(steps: int) -> bool:
        every = replace(config.training, steps=steps, validate_every=1)
        changed = replace(config, data=replace(config.data, valid=(valid,)), training=every)
        train_run(changed, run, resume=run.exists(), accept_changes=True, say=said.append)
        return "still improved" in said[-1].en

    assert until(5)
    write_pairs(valid, "abc")
    assert not until(7)  # two scores say nothing
    assert not until(7)
    assert until(8)
    losses = [each["loss"] for each in read_metrics(run) if each["event"] == "validated"]
    assert f"(loss {losses[-2]:.3g} → {losses[-1]:.3g})" in said[-1].en
    assert caplog.text.count("the validation data changed; resetting the best score") == 1
    assert "evaluation settings changed" not in caplog.text


def test_a_run_resumed_on_another_split_may_have_seen_what_is_held_out(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    config = settings(data)
    train_run(config, run)
    before = data.read_text("utf-8")
    for steps, line, changes, warned in (
        (6, "", {}, False),
        (7, "", {"batch_tokens": 80}, False),
        (8, "", {"held_out": 0.3}, True),
        (9, "abcd\tDCBA\n", {"held_out": 0.3}, True),
        (10, "", {"held_out": 0.0}, False),
    ):
        caplog.clear()
        data.write_text(before + line, "utf-8")
        own = replace(config.data, **changes)
        go_on(run, data=own, training=replace(config.training, steps=steps))
        assert ("not known to have been trained on the same split" in caplog.text) is warned


def test_columns_of_text_files_are_refused(data: Path, tmp_path: Path) -> None:
    lines = data.read_text("utf-8").splitlines()
    for side, name in enumerate(("a.src", "a.txt")):
        (tmp_path / name).write_text("".join(f"{x.split()[side]}\n" for x in lines), "utf-8")
    parallel = (tmp_path / "a.src", tmp_path / "a.txt")
    data.write_text("x\ty\n" + data.read_text("utf-8"), "utf-8")
    own = DataConfig(train=parallel, columns=("x", "y"), max_tokens=11)
    texts = {"data": replace(own, train=parallel[1:]), **alone(CausalLMConfig)}
    for changes in ({"data": own}, texts):
        with pytest.raises(UsageError, match=r"data\.columns is for \.tsv, .*: leave it out"):
            read_material(replace(settings(data), **changes))
    for changes in ({"valid": (data,)}, {"more": (data,)}, {"train": (data,), "valid": parallel}):
        assert read_material(replace(settings(data), data=replace(own, **changes))).train


def test_what_needs_validation_pairs_is_refused_without_any(data: Path, tmp_path: Path) -> None:
    config = settings(data)
    config = replace(config, data=replace(config.data, held_out=0.0))
    for changes, words in (
        ({"patience": 2}, "training.patience = 2 needs validation pairs: .* patience at None"),
        ({"monitor": "per"}, "training.monitor = 'per' needs validation .* monitor at 'loss'"),
    ):
        wrong = replace(config, training=replace(config.training, **changes))
        with pytest.raises(UsageError, match=words):
            train_run(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_saved_nothing_learns_its_tokenizers_again(data: Path, tmp_path: Path) -> None:
    def fall(event: object) -> None:
        raise InterruptedError

    run = tmp_path / "run"
    with pytest.raises(InterruptedError):
        train_run(settings(data), run, listeners=[fall])
    before = tokenizers(run)
    write_pairs(data, "gfedcba")
    go_on(run)
    assert tokenizers(run) == tokenizers(run / "model") != before


def test_the_model_is_saved_before_its_score_is_printed(data: Path, tmp_path: Path) -> None:
    def say(line: Text) -> None:
        if line.en.startswith("held out"):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        train_run(settings(data), tmp_path / "run", say=say)
    assert (tmp_path / "run" / "model" / "config.json").is_file()


@pytest.mark.parametrize(
    ("losses", "higher", "limit", "said"),
    [
        ([3.0, 2.0, 1.0], False, {"steps": 30}, "--training.steps 60"),
        ([3.0, 2.0, 1.0], False, {"minutes": 1.5}, "--training.minutes 3"),
        ([3.0, 2.0, 1.98], False, {"steps": 30}, ""),
        ([3.0, 1.0, 2.0], False, {"steps": 30}, ""),
        ([10.0, 20.0, 30.0], True, {"epochs": 3}, "--training.epochs 6"),
        ([3.0, 2.0, 1.0], False, {"epochs": 1}, "--training.epochs 2"),
        ([3.0, 2.0, 1.0], False, {"steps": 600_001}, "--training.steps 1200002"),
        ([2.0, 1.0], False, {"steps": 30}, ""),
    ],
)
def test_a_score_that_still_improved_asks_for_more_steps(
    losses: list[float], higher: bool, limit: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    name = "bleu" if higher else "loss"
    records = [
        {"event": "validated", "step": 10 * i, "loss": x, "scores": {name: x} if higher else {}}
        for i, x in enumerate(losses, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in records), "utf-8")
    best = (max if higher else min)(losses)
    (unit, value), best_step = next(iter(limit.items())), 10 * (losses.index(best) + 1)
    reason = f"{value} {plural(value, unit.removesuffix('s'))}"
    result = Result(10 * len(losses), reason, best_step, best)
    config = TrainingConfig(monitor=name, **limit)
    lines = [line.en for line in _longer(config, folder, result)]
    if not said:
        assert lines == []
        return
    assert len(lines) == 1
    assert f"pellucid train '{folder}' --resume --accept-changes {said}" in lines[0]
    assert f"{name} {losses[-2]:g} → {losses[-1]:g}" in lines[0]
    patience = Result(10 * len(losses), "no better loss in 3 validations", best_step, best)
    assert not list(_longer(config, folder, patience))
    # Validations before the run was resumed with this metric do not have it.
    other = replace(config, monitor="per")
    assert not list(_longer(other, folder, result))


def test_other_sizes_of_the_model_are_refused_in_words_for_the_command_line(
    data: Path, tmp_path: Path
) -> None:
    train_run(settings(data), tmp_path / "run")
    wider = replace(settings(data).model, ffn_dim=17)
    with pytest.raises(UserError, match="a run keeps the sizes of its model") as found:
        go_on(tmp_path / "run", model=wider)
    assert "do not fit, the first: " in str(found.value)
    assert "strict" not in str(found.value)


def test_the_card_says_whose_work_a_corpus_is(tmp_path: Path) -> None:
    written = card(tmp_path, load_recipe("multi30k-de-en-small"), None)
    assert find_corpus("multi30k-de-en").citation in written


def test_a_run_that_wrote_fewer_settings_had_their_defaults(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.1.0 left out some settings that had their default."""

    def fewer(config: RunConfig) -> dict[str, Any]:
        written = to_mapping(config)
        for name in ("model_type", "norm_type", "qk_norm"):
            del written["model"][name]
        return written

    run = tmp_path / "run"
    with monkeypatch.context() as before:
        before.setattr(RunConfig, "as_mapping", fewer)
        train_run(settings(data), run)
    assert "norm_type" not in (read_settings(run) or {})["model"]
    other = replace(settings(data).model, norm_type="rms_norm")
    with pytest.raises(UserError, match=r"model\.norm_type: layer_norm -> rms_norm\n"):
        train_run(replace(load_recipe(str(run)), model=other), run, resume=True)
    train_run(load_recipe(str(run)), run, resume=True)


def test_a_run_without_its_tokenizers_is_not_resumed(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(settings(data), run)
    (run / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        train_run(load_recipe(str(run)), run, resume=True)


def test_more_pairs_and_a_file_of_texts_do_not_go_together(tmp_path: Path) -> None:
    files = {"train": (tmp_path / "texts.txt",), "more": (tmp_path / "pairs.tsv",)}
    given = DataConfig(**files, max_tokens=11)
    with pytest.raises(UsageError, match="more is for pairs"):
        read_material(RunConfig(data=given, **alone(CausalLMConfig)))


def test_sources_of_the_same_words_are_on_one_side_of_the_split(tmp_path: Path) -> None:
    """A word tokenizer reads one blank or two alike, whatever normalises a text."""
    lines = [f"{a} {b}{c}\tx\n{a}  {b}{c}\tx\n" for a in "abc" for b in "abc" for c in "abcdef"]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    config = RunConfig(
        data=DataConfig(train=(tmp_path / "pairs.tsv",), held_out=0.3),
        tokenizer=TokenizerConfig(kind="word"),
    )
    pairs = read_material(config)
    seen = {tuple(pair.source.split()) for pair in pairs.train}
    assert pairs.valid
    assert not [pair for pair in pairs.valid if tuple(pair.source.split()) in seen]


@pytest.mark.parametrize("kind", [None, CausalLMConfig, MaskedLMConfig])
def test_bpe_dropout_is_drawn_again_from_where_the_run_stopped(
    data: Path, tmp_path: Path, kind: Any
) -> None:
    pieces = TokenizerConfig("bpe", vocab_size=270, dropout=0.5)
    config = settings(data, tokenizer=pieces, **(alone(kind) if kind else {}))
    longer = replace(config, training=replace(config.training, steps=7))
    train_run(config, tmp_path / "stopped")
    resumed = go_on(tmp_path / "stopped").trained.model.state_dict()
    whole = train_run(longer, tmp_path / "whole").trained.model.state_dict()
    plain = replace(longer, tokenizer=replace(pieces, dropout=0.0))
    other = train_run(plain, tmp_path / "plain").trained.model.state_dict()
    assert all(np.array_equal(resumed[name], whole[name]) for name in whole)
    assert not all(np.array_equal(other[name], whole[name]) for name in whole)


def test_bpe_dropout_of_characters_is_refused_before_there_is_a_folder(
    data: Path, tmp_path: Path
) -> None:
    config = settings(data, tokenizer=TokenizerConfig("char", dropout=0.1))
    with pytest.raises(UsageError, match="leaves out the merges"):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
