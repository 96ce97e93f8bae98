"""`pellucid.train` and `pellucid.load`: the same model, from Python."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.core.errors import UsageError, UserError
from pellucid.data.given import pairs_of
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
    assert "ended: step 10" in shown
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


@pytest.mark.parametrize("given", [5, "", None, b"g2p-demo", ["g2p-demo"]])
def test_what_is_no_path_is_named(given: Any) -> None:
    expected = f"{re.escape(repr(given))}$"
    with pytest.raises(UsageError, match=f"^load: expected the name or path .*, got {expected}"):
        pellucid.load(given)
    for name in ("recipe", "run", "start"):
        if given is not None or name == "recipe":
            asked = {"recipe": "g2p-small", "train": "pairs.tsv", name: given}
            with pytest.raises(UsageError, match=f"^train: {name}: expected the .*{expected}"):
                pellucid.train(**asked)


def test_a_path_may_begin_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Path("home of 나").absolute()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    Path("pairs.tsv").rename(home / "pairs.tsv")
    pellucid.train("g2p-small", train="~/pairs.tsv", run="~/run", steps=5, **SMALL)
    assert not Path("~").exists()
    assert pellucid.load("~/run").generate([""]) == [""]


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
    with pytest.raises(UserError, match=r"training.steps: 5 -> 10\n.*`accept_changes`"):
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
    with pytest.raises(UserError, match=r"`data\.held_out` is for files of your own without"):
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
        ({"train": 5}, "train: expected files, or pairs of texts; got 5"),
        (
            {"train": [("a", "b"), ("c",)]},
            r"train\[1\]: expected \(source, .* got \('c',\)",
        ),
        ({"train": ["my.tsv", ("a", "b")]}, r"train\[0\]: expected .* got 'my.tsv'"),
        ({"train": [{"a": "b"}] * 9}, "train-.*line 1: no key 'source'"),
        ({"epoch": 3}, r"unknown setting epoch \(did you mean epochs=…\?\)"),
        (
            {"lr": 0.1},
            r"lr \(did you mean training=\{\"schedule\": \{\"lr\": …\}\}",
        ),
        ({"learning_rate": 0.1}, r"did you mean training=\{\"schedule\": \{\"lr\""),
        ({"batch_size": 3}, r"did you mean data=\{\"batch_size\": …\}"),
        ({"columns": ["a", "b"]}, r"did you mean data=\{\"columns\": …\}"),
        ({"num_attention_heads": 3}, r"did you mean model=\{\"num_attention_heads\": …\}"),
        ({"steps": "5"}, "training.steps: expected a whole number, got '5'"),
        (
            {"callbacks": [print]},
            r"did you mean listeners=…\?\); there are: train, .* run, start, resume",
        ),
        ({"test_size": 0.1}, r"did you mean data=\{\"held_out\": …\}"),
        ({"modle": {}}, "unknown setting modle"),
        ({"model": {"d_modl": 3}}, "did you mean d_model"),
        ({"training": 3}, "training: expected a table"),
        ({"train": "pairs.tsv", "device": "gpu"}, "`device` gpu: expected cpu, cuda"),
        ({"train": "pairs.tsv", "precision": "half"}, "precision must be one of float32"),
        ({}, "no training data"),
    ],
)
def test_wrong_use_is_answered_in_words(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        pellucid.train(given.pop("recipe", "g2p-small"), **given)
    assert not Path("runs/g2p-small/config.toml").exists()


PAIRS = [("".join(word), " ".join(word)) for word in itertools.product("abcd", repeat=3)]


def test_pairs_of_a_program_are_kept_by_the_run_and_train_as_the_file_does() -> None:
    rows = [(word, text.upper()) for word, text in PAIRS]
    by_file = pellucid.train("g2p-small", train="pairs.tsv", steps=5, run="file", **SMALL)
    own = {"train": iter(rows), "valid": [("abab", "A B A B")], "search": {"max_length": 3}}
    by_rows = pellucid.train("g2p-small", steps=5, run="rows", **{**own, "valid": ()}, **SMALL)
    for name, array in by_file.model.state_dict().items():
        np.testing.assert_array_equal(by_rows.model.state_dict()[name], array)
    with_valid = pellucid.train(
        "g2p-small", steps=2, run="valid", **{**own, "train": rows}, **SMALL
    )
    assert with_valid.metric == "error_rates"
    settings = read_settings(Path("valid"))
    assert settings is not None
    names = [Path(name).name[:5] for side in ("train", "valid") for name in settings["data"][side]]
    assert names == ["train", "valid"]
    pellucid.train("g2p-small", run="valid", resume=True, accept_changes=True, steps=3)


class Table:
    """What pandas shows of a table, as far as it is asked for."""

    columns = ("id", "word", "kind", "form")

    def itertuples(self, index: bool, name: None) -> Iterator[tuple[Any, ...]]:
        assert not index
        return iter([(i, a, "N;PL", b) for i, (a, b) in enumerate(PAIRS)])


@dataclass
class Rows:
    """What Polars shows of a table."""

    columns: list[str]
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def iter_rows(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.rows)


class Lazy:
    """A table of Polars that is not made yet."""

    collect_schema = None

    def __init__(self, table: Rows) -> None:
        self.collect = lambda: table


class Arrow:
    """What Arrow shows of a table."""

    def __init__(self, table: Rows) -> None:
        self.column_names = table.columns
        self.to_pydict = lambda: dict(
            zip(table.columns, zip(*table.rows, strict=True), strict=True)
        )
        self.to_pylist = self.to_pydict


class Missing:
    """What pandas shows where there is nothing."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"


def test_cells_of_a_table_are_texts_several_or_none() -> None:
    cells = ["a b", np.array(["c", "d"], object), ["e"], Missing(), float("nan"), None, "nan", 7]
    found = pairs_of(Rows(["source", "target"], [("x", cell) for cell in cells]))
    assert [pair.targets for pair in found] == [
        ("a b",), ("c", "d"), ("e",), ("nan",), ("7",),
    ]  # fmt: skip


def test_a_table_gives_its_columns_and_a_tuple_is_a_source_of_several(
    capfd: pytest.CaptureFixture[str],
) -> None:
    how: dict[str, Any] = {"steps": 2, "search": {"max_length": 3}, **SMALL}
    with pytest.raises(UserError, match=r"the table has id, word, kind, form; name two or three"):
        pellucid.train("inflect", train=Table(), **how)
    names = ["word", "kind", "form"]
    model = pellucid.train("inflect", train=Table(), data={"columns": names}, **how)
    assert "; the first: aaa + N;PL → " in "".join(capfd.readouterr())
    assert model.generate([("abc", "N;PL")]) == model.generate(["abc\tN;PL"])
    with pytest.raises(UserError, match=r"tuple of the source's columns; texts\[0\] is \('a', 3\)"):
        model.generate([("a", 3)])
    rows, (two, three) = [("abc", "N;PL")], (Rows(["a", "b"]), Rows(["a", "b", "c"]))
    two.rows = rows
    assert model.generate(Lazy(two)) == model.generate(Arrow(two)) == model.generate(rows)
    for table in (three, Rows(["a"])):
        with pytest.raises(UserError, match=r"columns a.*, and the model reads 2; choose them: ge"):
            model.generate(table)
    triples = [(a, "N;PL", b) for a, b in PAIRS]
    by_place = pellucid.train("inflect", train=triples, run="triples", **how)
    assert by_place.generate([("abc", "N;PL")]) == model.generate([("abc", "N;PL")])


def test_one_model_pronounces_several_languages_by_a_tag() -> None:
    """The third column is a token of its own (docs/start.md): the same word, two languages."""
    words = ["".join(letters) for letters in itertools.product("abc", repeat=2)]
    rows = [
        row for word in words for row in ((word, "deu", " ".join(word.upper())), (word, "hun", "x"))
    ]
    model = pellucid.train(
        "g2p-small",
        train=rows,
        valid=rows,
        steps=60,
        tokenizer={"kind": "features"},
        model=SMALL["model"],
        training={"validate_every": 60, "schedule": {"lr": 2e-2, "warmup": 5}},
    )
    assert model.generate([("ab", "deu"), ("ab", "hun")]) == ["A B", "x"]
    assert len(model.source.encode("ab\tdeu")) == 3  # two letters and a tag


def test_a_model_is_evaluated_as_its_card_was() -> None:
    pairs = [(word, text.upper()) for word, text in PAIRS]
    how: dict[str, Any] = {"valid": pairs[:7], "search": {"max_length": 3}, **SMALL}
    pellucid.train("g2p-small", train=pairs[7:], steps=5, **how)
    scores = pellucid.load("runs/g2p-small/model").evaluate(pairs[:7])
    card = Path("runs/g2p-small/model/README.md").read_text(encoding="utf-8")
    for name, value in scores.written().items():
        assert f"| {name} | {value} |" in card
        assert value in str(scores)
    model = pellucid.load("runs/g2p-small")
    assert model.evaluate("pairs.tsv", "none").measured is None
    with pytest.raises(UserError, match="metric = 'per' is not known"):
        model.evaluate(pairs, "per")


def test_a_printed_model_is_a_table() -> None:
    shown = str(pellucid.load("g2p-demo"))
    assert "0x" not in shown
    assert shown == repr(pellucid.load("g2p-demo"))
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert rows["model"] == "An encoder-decoder Transformer."
