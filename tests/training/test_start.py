"""A run that begins with a model that exists: of Hugging Face's, and of ours."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from tests.interop.test_huggingface import (
    FIXTURES,
    assert_near,
    run,
    their_logits,
    with_labels,
)
from tokenizers import models, pre_tokenizers, processors

import pellucid
from pellucid.apps.cli.main import main
from pellucid.core.errors import UserError
from pellucid.interop.huggingface import read_pretrained
from pellucid.training.experiment import encode, read_material
from pellucid.training.start import load_recipe_from, open_start

LETTERS = "abcdefghij"
SPECIALS = {
    "bart": ["<s>", "<pad>", "</s>", "<unk>"],
    "t5": ["<pad>", "</s>", "<unk>"],
    "gpt2": ["<unk>", "<s>", "</s>"],
    "llama": ["<unk>", "<s>", "</s>"],
    "bert": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
}
FRAMES = {"bart": "<s> $A </s>", "t5": "$A </s>"}


@pytest.fixture(autouse=True)
def plainly() -> Iterator[None]:
    with pellucid.reference():
        yield


def write_tokenizer(folder: Path, specials: list[str], frame: str = "$A", more: int = 0) -> None:
    """Write a tokenizer of letters as Hugging Face has it, with `more` entries than it needs."""
    names = [*specials, *LETTERS, *(f"more{i}" for i in range(more))]
    vocab = {name: i for i, name in enumerate(names)}
    unknown = next(name for name in specials if "unk" in name.lower())
    core = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=unknown))
    core.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("."), "isolated")
    ids = [(name, vocab[name]) for name in specials]
    core.post_processor = processors.TemplateProcessing(single=frame, special_tokens=ids)
    core.add_special_tokens(specials)
    core.save(str(folder / "tokenizer.json"))


def pretrained(family: str, place: Path, **more: int) -> Path:
    folder = place / f"their-{family}"
    shutil.copytree(FIXTURES / family, folder)
    write_tokenizer(folder, SPECIALS[family], FRAMES.get(family, "$A"), **more)
    return folder


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Settings of one's own: the data and the training, and nothing of the model."""
    words = [a + b + c for a in LETTERS[:4] for b in LETTERS for c in "ab"]
    (tmp_path / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
    path = tmp_path / "mine.toml"
    path.write_text(
        f'[data]\ntrain = ["{tmp_path / "pairs.tsv"}"]\nbatch_tokens = 97\n'
        "[training]\nsteps = 3\nkeep = 3\ncheckpoint_every = 1\n"
    )
    return path


def bits(folder: Path) -> dict[str, bytes]:
    return {name: x.tobytes() for name, x in load_file(folder / "model.safetensors").items()}


@pytest.mark.parametrize("family", SPECIALS)
def test_their_model_is_trained_on_and_theirs_again(
    family: str, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = 97 - len(SPECIALS[family]) - len(LETTERS)  # as many tokens as the model has
    theirs, folder = pretrained(family, tmp_path, more=full), tmp_path / "run"
    arguments = ["train", str(recipe), "--from", str(theirs), "--run", str(folder)]
    assert main([*arguments, "--model.dropout", "0.3"]) == 0, capsys.readouterr().err
    assert bits(folder / "model") != bits(theirs)
    assert type(pellucid.load(folder)) is type(pellucid.load(theirs))

    settings = tomllib.loads((folder / "config.toml").read_text())
    assert (settings["model"]["dropout"], settings["start"]["model_type"]) == (0.3, family)
    d_model = read_pretrained(theirs).config.d_model
    assert (settings["model"]["d_model"], settings["tokenizer"]) == (d_model, {"shared": True})
    assert settings["data"]["max_tokens"] == settings["model"]["max_position_embeddings"] - 2 or (
        settings["data"]["max_tokens"] == 128
    )

    assert main(["evaluate", str(folder)]) == 0

    # Stopped after two steps, and gone on with where the model it began with is no longer there.
    again = tmp_path / "again"
    shutil.copytree(folder, again)
    shutil.rmtree(again / "model")
    shutil.rmtree(again / "checkpoints" / "step-00000003")
    shutil.rmtree(theirs)
    assert main(["train", "--resume", str(again)]) == 0, capsys.readouterr().err
    assert bits(again / "model") == bits(folder / "model")

    assert main(["export", str(folder), str(tmp_path / "out"), "--to", "huggingface"]) == 0
    assert bits(tmp_path / "out") == bits(folder / "model")
    assert (tmp_path / "out" / "tokenizer.json").exists()


@pytest.mark.oracle("torch", "transformers")
@pytest.mark.parametrize("family", SPECIALS)
def test_transformers_reads_a_run_from_its_model(family: str, recipe: Path, tmp_path: Path) -> None:
    theirs, folder = pretrained(family, tmp_path), tmp_path / "run"
    assert main(["train", str(recipe), "--from", str(theirs), "--run", str(folder)]) == 0
    answers = load_file(FIXTURES / family / "answers.safetensors")
    ours = run(read_pretrained(folder / "model", np.float64), answers)[0]
    assert_near(ours, their_logits(folder / "model", answers), 2e-5)


def test_a_classifier_is_trained_on_with_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, _ = with_labels("bert", tmp_path / "bert")
    write_tokenizer(theirs, SPECIALS["bert"], "[CLS] $A [SEP]")
    model = pellucid.load(theirs)
    assert model.label_names == ["no", "perhaps", "yes"]
    assert model.source.encode("ab") == [2, 5, 6, 3]
    with pytest.raises(UserError, match="a tab is between a pair of texts"):
        model.generate([("ab", "cd")])
    words = [a + b + c for a in LETTERS for b in LETTERS for c in "ab"]
    rows = (f"{word}\t{'yes' if 'c' in word else 'no'}\n" for word in words)
    (tmp_path / "data.tsv").write_text("".join(rows))
    (tmp_path / "mine.toml").write_text(
        f'[data]\ntrain = ["{tmp_path / "data.tsv"}"]\nbatch_tokens = 197\n'
        "[training]\nsteps = 20\n[training.schedule]\nlr = 1e-2\n"
    )
    arguments = ["train", str(tmp_path / "mine.toml"), "--from", str(theirs), "--run"]
    assert main([*arguments, str(tmp_path / "run")]) == 0, capsys.readouterr().err
    trained = pellucid.load(tmp_path / "run")
    assert trained.label_names == model.label_names
    before, after = (
        [{guess.token: guess.p for guess in found} for (found,) in each.labels(words, best=3)]
        for each in (model, trained)
    )
    for name, falls in (("perhaps", True), ("no", False)):  # the data never say perhaps
        old, new = (np.mean([row[name] for row in rows]) for rows in (before, after))
        assert (new < old) == falls
    written = tmp_path / "out"
    assert main(["export", str(tmp_path / "run"), str(written), "--to", "huggingface"]) == 0
    assert bits(tmp_path / "out") == bits(tmp_path / "run" / "model")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"]["2"] == "yes"


def test_a_target_begins_as_the_checkpoint_was_trained_to(tmp_path: Path, recipe: Path) -> None:
    rows: dict[str, Any] = {}
    for family in ("bart", "t5"):
        start = open_start(pretrained(family, tmp_path))
        config = load_recipe_from(str(recipe), start)
        examples = encode(start.trained, read_material(config).train[:1], config, True)
        rows[family] = examples.source.tokens.tolist(), examples.target.tokens.tolist()
    assert rows["bart"] == ([0, 4, 4, 4, 2], [2, 0, 4, 4, 4, 2])
    assert rows["t5"] == ([3, 3, 3, 1], [0, 3, 3, 3, 1])


def test_ours_is_trained_on_with_its_tokenizers(recipe: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    small = ["--model.d-model", "12", "--model.num-attention-heads", "3", "--model.ffn-dim", "7"]
    small += ["--model.encoder-layers", "1", "--model.decoder-layers", "1"]
    own = ["--tokenizer.kind", "char", "--tokenizer.normalise", "nfd", "lowercase"]
    assert main(["train", str(recipe), "--run", str(first), *small, *own]) == 0
    begun = ["train", str(recipe), "--from", str(first), "--run"]
    assert (
        main([*begun, str(second), "--training.steps", "1", "--training.schedule.lr", "1e-9"]) == 0
    )
    assert (second / "model" / "tokenizer.json").read_bytes() == (
        first / "model" / "tokenizer.json"
    ).read_bytes()
    before, after = (load_file(f / "model" / "model.safetensors") for f in (first, second))
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, atol=1e-8)
    settings = tomllib.loads((second / "config.toml").read_text())
    assert settings["tokenizer"]["normalise"] == ["nfd", "lowercase"]
    # Its settings begin the same run once more.
    assert main(["train", str(second / "config.toml"), "--run", str(third)]) == 0
    assert bits(third / "model") == bits(second / "model")


@pytest.mark.parametrize("family", ["seq2seq", "causal-lm", "masked-lm"])
def test_new_letters_get_rows_and_the_old_ones_are_kept(
    family: str, recipe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    settings = recipe.read_text() + f'[model]\nmodel_type = "pellucid-{family}"\n'
    recipe.write_text(settings + "d_model = 12\nnum_attention_heads = 3\nffn_dim = 7\n")
    assert main(["train", str(recipe), "--run", str(first), "--tokenizer.kind", "char"]) == 0
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(pairs.read_text().replace("a", "AéA"))
    caplog.set_level("INFO")
    begun = ["train", str(recipe), "--from", str(first), "--run", str(second)]
    assert main([*begun, "--training.schedule.lr", "1e-12"]) == 0
    before, after = pellucid.load(first), pellucid.load(second)
    new = "é" if family == "seq2seq" else "Aé"  # a source's capital is read as the letter
    if family == "seq2seq":
        assert "1 new tokens in the source's vocabulary have rows of their own: 'é'" in caplog.text
    else:
        assert f"{len(new)} new tokens in the vocabulary have rows of their own" in caplog.text
    for old, now in zip(before.tokenizers, after.tokenizers, strict=True):
        assert now.vocabulary[: old.vocab_size] == old.vocabulary
        assert set(new) <= set(now.vocabulary[old.vocab_size :])
        assert now.encode("é") != [3]
    assert before.tokenizers[0].encode("A") == before.tokenizers[0].encode("a")
    state, grown = before.model.state_dict(), after.model.state_dict()
    masks = before.added_tokens
    for name, array in state.items():
        own = len(array) - (masks if len(array) < len(grown[name]) else 0)
        np.testing.assert_allclose(grown[name][:own], array[:own], rtol=0, atol=1e-9)
        np.testing.assert_allclose(grown[name][own - len(array) or len(grown[name]) :], array[own:])
    assert (
        main(["train", "--resume", str(second), "--accept-changes", "--training.steps", "4"]) == 0
    )
    again = pellucid.load(second)
    assert [t.vocabulary for t in again.tokenizers] == [t.vocabulary for t in after.tokenizers]


def test_bpe_dropout_is_kept_and_the_vocabularys_size_is_the_tokenizers(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    small = ["--model.d-model", "12", "--model.num-attention-heads", "3", "--model.ffn-dim", "7"]
    small += ["--training.steps", "1"]
    assert main(["train", str(recipe), "--run", str(first), *small]) == 0
    begun = ["train", str(recipe), "--from", str(first), "--run", str(second)]
    own = ["--tokenizer.dropout", "0.1", "--tokenizer.vocab-size", "5000"]
    assert main([*begun, "--training.steps", "1", *own]) == 0, capsys.readouterr().err
    settings = tomllib.loads((second / "config.toml").read_text())
    assert settings["tokenizer"]["dropout"] == 0.1
    vocabulary = pellucid.load(first).tokenizers[0].vocab_size
    assert settings["tokenizer"]["vocab_size"] == vocabulary < 5000
    assert main(["train", "--resume", str(second)]) == 0, capsys.readouterr().err
    start = open_start(first)
    assert load_recipe_from("multi30k-en-de", start).tokenizer.dropout == 0.05
    assert load_recipe_from("g2p-small", start).tokenizer.dropout == 0.0
    of_letters = open_start(Path("g2p-demo"))
    assert load_recipe_from("multi30k-en-de", of_letters).tokenizer.dropout == 0.0


def test_a_start_that_may_have_seen_the_held_out_pairs_is_named(
    recipe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, named = tmp_path / "first", "first: not known to have been trained on the same split"
    small = ["--model.d-model", "12", "--model.num-attention-heads", "3", "--model.ffn-dim", "7"]
    assert (
        main(["train", str(recipe), "--run", str(first), *small, "--tokenizer.kind", "char"]) == 0
    )
    begun = ["train", str(recipe), "--from", str(first), "--training.steps", "1"]
    pairs = tmp_path / "pairs.tsv"
    pairs_before = pairs.read_text()
    for options, line, warned in (
        ([], "", False),
        (["--data.batch-tokens", "80"], "", False),
        (["--data.held-out", "0.2"], "", True),
        (["--data.held-out", "0"], "", False),
        ([], "abcd\tdcba\n", True),
    ):
        caplog.clear()
        pairs.write_text(pairs_before + line)
        run = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        assert main([*begun, *options, "--run", str(run)]) == 0
        assert (named in caplog.text) is warned, options
    caplog.clear()
    (bare := tmp_path / "bare").mkdir()
    shutil.copytree(first / "model", bare / "model")
    assert (
        main(["train", str(recipe), "--from", str(bare / "model"), "--run", str(bare / "run")]) == 0
    )
    assert named not in caplog.text


@pytest.mark.parametrize(
    ("family", "options", "words"),
    [
        ("gpt2", ["--model.num-hidden-layers", "3"], "model.num_hidden_layers = 3: "),
        ("gpt2", ["--tokenizer.kind", "char"], "tokenizer.kind = 'char': "),
        ("gpt2", ["--data.max-tokens", "30"], "must hold data.max_tokens"),
        ("gpt2", ["--weights", "int8"], "leave --weights int8 out"),
        ("gpt2", ["--evaluation.metric", "bleu"], "is for encoder-decoders"),
        ("bart", ["--data.train", "mine.txt"], "expected a file named .tsv"),
    ],
)
def test_what_contradicts_the_model_is_refused(
    family: str,
    options: list[str],
    words: str,
    recipe: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = pretrained(family, tmp_path)
    arguments = ["train", str(recipe), "--from", str(theirs), "--run", str(tmp_path / "run")]
    assert main([*arguments, *options]) in (1, 2)
    told = capsys.readouterr().err
    assert words in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_trained_on_says_why(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(folder: Path, settings: Path | str = recipe) -> str:
        arguments = ["train", str(settings), "--from", str(folder)]
        assert main([*arguments, "--run", str(tmp_path / "run")]) in (1, 2)
        return capsys.readouterr().err

    theirs = pretrained("gpt2", tmp_path)
    assert "for a pellucid-seq2seq, and " in told(theirs, "multi30k-de-en")
    assert "there is no such folder" in told(tmp_path / "none")
    assert "(did you mean" in told(theirs.with_name(f"{theirs.name}s"))
    (theirs / "tokenizer.json").unlink()
    assert "has no tokenizer.json" in told(theirs)
    write_tokenizer(theirs, SPECIALS["gpt2"], more=97)
    assert "has ids up to 109, the model 97 tokens" in told(theirs)
    headless = pretrained("bert", tmp_path)
    tensors = load_file(headless / "model.safetensors")
    bare = {name: x for name, x in tensors.items() if not name.startswith("cls.")}
    save_file(bare, headless / "model.safetensors")
    assert "no layer that predicts tokens" in told(headless)


def test_a_run_is_resumed_with_the_model_it_began_with(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, folder = pretrained("gpt2", tmp_path), tmp_path / "run"
    arguments = ["train", str(recipe), "--from", str(theirs), "--run", str(folder)]
    assert main(arguments) == 0
    assert main([*arguments, "--resume"]) == 2
    assert "leave --from out" in capsys.readouterr().err
    changed = folder / "start" / "config.json"
    changed.write_text(json.dumps(json.loads(changed.read_text()) | {"eos_token_id": 1}))
    assert (
        main(["train", "--resume", str(folder), "--training.steps", "5", "--accept-changes"]) == 1
    )
    assert "is not the model that the run began with" in capsys.readouterr().err


def test_a_start_stored_in_int8_is_scored_in_float32(tmp_path: Path) -> None:
    config = load_recipe_from("g2p-demo", start := open_start(Path("g2p-demo")))
    assert start.trained.arithmetic == "int8"
    assert start.task(config).arithmetic == "float32"
