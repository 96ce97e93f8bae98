"""Texts are classified and tokens tagged: a run from settings, its folder, answers, refusals."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.apps.cli.main import Warnings, main
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.data.pairs import TextPair
from pellucid.training.config import load_recipe
from pellucid.training.experiment import read_material
from pellucid.training.run import read_metrics

ANIMALS, COLOURS = ("cat", "dog", "cow", "hen", "owl"), ("red", "blue", "green", "pink", "grey")
SETTINGS = """
[data]
train = ["{train}"]
held_out = 0.1
batch_tokens = 64
[tokenizer]
kind = "word"
target_kind = "{kind}"
[model]
model_type = "pellucid-classifier"
labels = "{labels}"
d_model = 24
num_attention_heads = 2
num_hidden_layers = 1
ffn_dim = 32
dropout = 0.0
[training]
steps = 60
[training.schedule]
name = "constant"
lr = 1e-2
"""


def rows(labels: str) -> list[tuple[str, str]]:
    """Texts of two words; of a text the label is "two animals" or "no animals, or one"."""
    found = []
    for a in (*ANIMALS, *COLOURS):
        for b in (*ANIMALS, *COLOURS):
            tags = ["animal" if word in ANIMALS else "colour" for word in (a, b)]
            whole = "two animals" if tags == ["animal"] * 2 else "one at most"
            found.append((f"{a} {b}", whole if labels == "text" else " ".join(tags)))
    return found


@pytest.fixture(scope="module", params=["text", "token"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    folder, labels = tmp_path_factory.mktemp("labels"), request.param
    data = folder / "data.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in rows(labels)), encoding="utf-8")
    kind = "label" if labels == "text" else "word"
    settings = SETTINGS.format(train=data, kind=kind, labels=labels)
    (folder / "my.toml").write_text(settings, encoding="utf-8")
    assert main(["train", str(folder / "my.toml"), "--run", str(folder / "run")]) == 0
    return labels, folder / "run"


def test_a_run_labels_as_its_data(run: tuple[str, Path], capsys: Any) -> None:
    labels, folder = run
    model = pellucid.load(folder)
    texts, expected = zip(*rows(labels), strict=True)
    found = model.generate(list(texts))
    assert np.mean([a == b for a, b in zip(found, expected, strict=True)]) > 0.9
    seen = model.attention("owl pink")["encoder.layers.0.self_attn"]
    assert (seen.queries, seen.weights.shape) == (seen.keys, (2, *[len(seen.keys)] * 2))
    for method in ("generate", "labels"):
        with pytest.raises(UserError, match=rf"{method} takes a list of texts: write {method}\("):
            getattr(model, method)("owl pink")
    with pytest.raises(UserError, match="best must be at least 1, a whole number; got '2'"):
        model.labels(["owl pink"], best="2")
    with pytest.raises(UserError, match="best must be at least 1"):
        model.labels(["owl pink"], best=0)
    (blanks,) = model.labels(["owl pink"], best=9)
    assert [blank[0].text for blank in blanks] == (
        ["owl pink"] if labels == "text" else ["owl", "pink"]
    )
    assert all(abs(sum(guess.p for guess in blank) - 1) < 1e-3 for blank in blanks)
    assert main(["evaluate", str(folder)]) == 0
    assert "of the labels predicted" in capsys.readouterr().out
    assert main(["generate", str(folder), "cow red", "--best", "1"]) == 0
    shown = capsys.readouterr().out.split("\n")[0]
    assert shown.startswith("one at most" if labels == "text" else "animal")


def test_texts_that_have_no_label(run: tuple[str, Path]) -> None:
    model = pellucid.load(run[1])
    with pytest.raises(UserError, match="'' has 0 tokens; this model reads 1 to 256"):
        model.labels(["cat", ""])
    assert model.labels([]) == []


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export {} new --to huggingface", "not read from a Hugging Face folder"),
        ("export {} new --to ctranslate2", "which cannot be exported to ctranslate2"),
    ],
)
def test_what_does_not_know_labels_says_so(
    command: str,
    message: str,
    run: tuple[str, Path],
    tmp_path: Path,
    capsys: Any,
    monkeypatch: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.format(run[1]).split()) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_special_token_is_neither_predicted_nor_right(run: tuple[str, Path]) -> None:
    model = pellucid.load(run[1])
    known = [TextPair(text, (label,)) for text, label in rows(run[0])]
    new = [
        TextPair(text, (" ".join(["new"] * len(label.split())),)) for text, label in rows(run[0])
    ]
    sizes = {"max_tokens": 9, "batch_tokens": 64}
    before, (labels,) = model.evaluate(known, **sizes), model.labels(["owl pink"], best=9)
    weight = model.model.output.weight.data
    weight[:4] = 100 * np.array([[1], [-1], [1], [-1]]) * weight[4]  # <pad> or <s> is likeliest
    for _ in range(2):
        after = model.evaluate(known, **sizes)
        assert (after.accuracy, after.measured) == (before.accuracy, before.measured)
        assert model.evaluate(new, **sizes).accuracy == 0
        for blank, same in zip(*model.labels(["owl pink"], best=9), labels, strict=True):
            assert [guess.token for guess in blank] == [guess.token for guess in same]
            assert sum(guess.p for guess in blank) == pytest.approx(1)
        weight[:4] = weight[[2, 3, 0, 1]] * np.array([[1], [1], [2], [2]])  # now </s> or <unk>


def test_targets_that_are_no_labels_are_refused(run: tuple[str, Path], capsys: Any) -> None:
    settings = run[1].parent / "my.toml"
    other = "word" if run[0] == "text" else "label"
    arguments = ["train", str(settings), "--run", str(run[1].parent / "other")]
    assert main([*arguments, "--tokenizer.target-kind", other]) == 1
    assert re.search("labels?, expected one", capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--data.train", "--data"])
def test_a_list_of_labels_is_refused(
    option: str, run: tuple[str, Path], tmp_path: Path, capsys: Any
) -> None:
    lines = [{"source": text, "target": [label]} for text, label in rows(run[0])]
    lines[7]["target"] *= 2
    data = tmp_path / "data.jsonl"
    data.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    begun = ["train", str(run[1].parent / "my.toml"), "--run", str(tmp_path / "run")]
    command = begun if option == "--data.train" else ["evaluate", str(run[1])]
    held_out = ["--data.held-out", "0"] if option == "--data.train" else []
    assert main([*command, option, str(data), *held_out]) == 1
    assert "'cat green' has a list of 2 labels" in capsys.readouterr().err


def test_the_recipe_is_one_of_labels() -> None:
    assert load_recipe("topics-ko").model.labels == "text"


def test_a_run_is_scored_by_label_and_its_f1_is_monitored(
    run: tuple[str, Path], tmp_path: Path, capsys: Any
) -> None:
    settings = run[1].parent / "my.toml"
    monitored = ["--training.monitor", "f1", "--training.patience", "3", "--training.steps", "30"]
    assert main(["train", str(settings), "--run", str(tmp_path / "run"), *monitored]) == 0
    records = read_metrics(tmp_path / "run")
    validated = [record for record in records if record["event"] == "validated"]
    assert all(record["scores"].keys() == {"accuracy", "f1"} for record in validated)
    best = [record["scores"]["f1"] for record in validated if record["best"]]
    assert best == sorted(best)
    capsys.readouterr()
    picture = tmp_path / "confusion.svg"
    asked = ["evaluate", str(run[1]), "--data", str(run[1].parent / "data.tsv")]
    assert main([*asked, "--json", "--confusion", str(picture)]) == 0
    scores = json.loads(capsys.readouterr().out)
    names = {"two animals", "one at most"} if run[0] == "text" else {"animal", "colour"}
    assert scores["labels"].keys() == names
    confusion = np.array(scores["confusion"])
    assert confusion.sum() == sum(row["texts"] for row in scores["labels"].values())
    assert scores["accuracy"] == pytest.approx(confusion.trace() / confusion.sum())
    low, high = scores["intervals"]["accuracy"]
    assert low <= scores["accuracy"] <= high
    assert picture.read_text(encoding="utf-8").count("<svg") == 1
    assert main([*asked, "--confusion", "x.txt"]) == 2


def test_a_metric_of_answers_does_not_score_labels(run: tuple[str, Path], capsys: Any) -> None:
    settings = str(run[1].parent / "my.toml")
    assert main(["train", settings, "--run", "x", "--evaluation.metric", "bleu"]) == 2
    assert "is for encoder-decoders" in capsys.readouterr().err
    assert main(["train", "g2p-demo", "--run", "x", "--evaluation.metric", "labels"]) == 2
    assert "is for models of labels" in capsys.readouterr().err
    with pytest.raises(UserError, match="metric = 'blue' is not known"):
        pellucid.load(run[1]).evaluate(rows(run[0])[:2], "blue")
    for metric in ("bleu", "error_rates"):
        with pytest.raises(UserError, match=f'metric = "{metric}" is for encoder-decoders'):
            pellucid.load(run[1]).evaluate(rows(run[0])[:2], metric)


def test_what_training_never_saw_is_named_where_texts_are_labelled(
    run: tuple[str, Path], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = pellucid.load(run[1])
    for answer in (trained.labels, trained.generate):
        caplog.clear()
        answer(["cat dog", "cat yak dog", "owl hen emu"])
        told = [message for message in caplog.messages if "compiling" not in message]
        assert told == ["not seen in training: 'yak' 'emu'"]
    printed = Warnings()
    logging.getLogger().addHandler(printed)
    try:
        assert main(["generate", str(run[1]), "cat dog", "cat yak dog"]) == 0
    finally:
        logging.getLogger().removeHandler(printed)
    told = [line for line in capsys.readouterr().err.splitlines() if "compiling" not in line]
    assert told == ["pellucid: text 2: not seen in training: 'yak'"]


def test_texts_with_rare_labels_are_repeated_in_training_alone(tmp_path: Path) -> None:
    lines = [f"text {i}\t{'rare' if i % 9 == 0 else 'usual'}\n" for i in range(180)]
    (tmp_path / "data.tsv").write_text("".join(lines), encoding="utf-8")
    recipe = load_recipe("topics-ko")
    counts = {}
    for balance in (0.0, 0.5, 1.0):
        data = replace(recipe.data, train=(tmp_path / "data.tsv",), balance=balance)
        pairs = read_material(replace(recipe, data=data))
        counts[balance] = Counter(pair.target for pair in pairs.train)
        assert len(set(pairs.valid)) == len(pairs.valid)
    assert counts[1.0]["usual"] == counts[0.0]["usual"]
    usual, rare = counts[0.0]["usual"], counts[0.0]["rare"]
    assert counts[1.0]["rare"] == round(usual / rare) * rare
    assert counts[0.5]["rare"] == round((usual / rare) ** 0.5) * rare
    with pytest.raises(UserError, match="for a model that gives each text a label"):
        replace(load_recipe("g2p-small"), data=replace(recipe.data, balance=0.5))


@pytest.mark.oracle("onnxruntime")
def test_a_classifier_is_the_same_in_onnx(run: tuple[str, Path], tmp_path: Path) -> None:
    import onnxruntime

    assert main(["export", str(run[1]), str(tmp_path / "onnx"), "--to", "onnx"]) == 0
    model = pellucid.load(run[1])
    texts = ["cat dog", "owl pink", "cow", "red green"]
    padded = Packed.of(model.source.encode_all(texts)).padded(0)
    mask = (padded != 0).astype(np.int64)
    graph = onnxruntime.InferenceSession(
        str(tmp_path / "onnx" / "encoder.onnx"), providers=["CPUExecutionProvider"]
    )
    (log_p,) = graph.run(["log_p"], {"input_ids": padded.astype(np.int64), "attention_mask": mask})
    names = json.loads((tmp_path / "onnx" / "labels.json").read_text(encoding="utf-8"))
    assert names == model.label_names
    for row, tokens in zip(log_p, model.labels(texts, best=9), strict=True):
        each = [row] if run[0] == "text" else row[: len(tokens)]
        for got, guesses in zip(each, tokens, strict=True):
            by_name = dict(zip(names, np.exp(got).tolist(), strict=True))
            assert by_name == pytest.approx({g.token: g.p for g in guesses}, abs=1e-5)


def test_pairs_of_texts_are_labelled_from_three_columns(tmp_path: Path, capsys: Any) -> None:
    letters = "aeioubcdfg"
    known = {(a, b): "vowel" if a in "aeiou" else "consonant" for a in letters for b in letters}
    lines = [f"{a},{b},{label}{'  ' * (a == b)}" for (a, b), label in known.items()]
    (tmp_path / "data.csv").write_text("\n".join(["one,two,first", *lines]))
    settings = SETTINGS.format(train=tmp_path / "data.csv", kind="label", labels="text")
    recipe, run = tmp_path / "my.toml", str(tmp_path / "run")
    recipe.write_text(settings.replace('"word"', '"char"'), encoding="utf-8")
    named = ["train", str(recipe), "--data.columns", "one", "two"]
    assert main([*named, "first", "--run", run]) == 0
    model = pellucid.load(run)
    found = model.generate(list(known))  # which of the two is first matters
    assert np.mean([a == b for a, b in zip(found, known.values(), strict=True)]) > 0.9
    assert len(model.guesses("a\tb", 9)[0]) == 2  # blanks around a label make no other
    assert model.generate(["a\tb"]) == model.generate([("a", "b")])
    with pytest.raises(UserError, match=r"expected 2 columns .* 'ab' has 1"):
        model.generate(["ab"])
    texts = tmp_path / "texts.tsv"
    texts.write_text("a\tb\nb\ta\n")
    capsys.readouterr()
    assert main(["generate", run, "--file", str(texts), "--best", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *model.generate([("a", "b"), ("b", "a")])
    ]
    assert main(["evaluate", run]) == 0
    for options, error in (
        (["first", "--tokenizer.kind", "word"], "which the tokenizer word and the normaliser"),
        (
            ["first", "first"],
            "takes 2 or 3 different columns, target last; got ('one', 'two', ",
        ),
    ):
        assert main([*named, *options, "--run", str(tmp_path / "other")]) == 2
        assert error in " ".join(capsys.readouterr().err.split())


def test_labels_are_in_the_order_of_the_texts_however_many_go_together(
    run: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pellucid.load(run[1])
    texts = ["owl", "red pink", "cow", "pink", "owl cow"]
    alone = [model.labels([text], best=2)[0] for text in texts]
    monkeypatch.setattr("pellucid.tasks.task.TEXTS_AT_ONCE", 2)
    for one, together in zip(alone, model.labels(texts, best=2), strict=True):
        for a, b in zip(one, together, strict=True):
            assert [(x.token, x.text) for x in a] == [(x.token, x.text) for x in b]
            np.testing.assert_allclose([x.p for x in a], [x.p for x in b], rtol=1e-5)
