"""Cases taken from public reports: the file, and what is right (`cases/README.md` beside it)."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.apps.serve.servers import Running, ask, running

import pellucid
from pellucid.apps.cli.main import main
from pellucid.core.errors import UserError
from pellucid.nn import StateError
from pellucid.tasks.bleu import bleu
from pellucid.tasks.folder import load_model
from pellucid.training.config import load_recipe
from pellucid.training.experiment import make_tokenizers, read_material

CASES = Path(os.environ.get("PELLUCID_CASES", Path(__file__).parents[2] / "shared" / "cases"))
SHIPPED = Path(pellucid.__file__).parent / "trained"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no folder {CASES}")


def test_k6_a_prefix_that_ends_inside_a_token() -> None:
    trained = replace(load_model(SHIPPED / "chat-ko"), arithmetic="float32")
    for line in (CASES / "k6_prefix.tsv").read_text(encoding="utf-8").splitlines():
        text, prefix = line.split("\t")
        (free,) = trained.generate_answers([text])[0]
        (found,) = trained.generate_answers([text], prefix=prefix)[0]
        assert found.text.startswith(prefix)
        assert not free.text.startswith(prefix) or found.log_p >= free.log_p - 1e-4


def rows(name: str) -> list[list[str]]:
    """Return the rows of a TSV file."""
    lines = (CASES / name).read_text(encoding="utf-8").split("\n")
    return [line.split("\t") for line in lines if line]


def plainest(text: str) -> str:
    """Return a text without all that nobody sees."""
    return "".join(re.sub("[\u200b\ufeff]", "", unicodedata.normalize("NFC", text)).split()).lower()


def small(recipe: str, train: Path, run: Path, steps: int, **more: Any) -> Any:
    """Train a small model of a recipe's kind."""
    settings: dict[str, Any] = {
        "model": {"d_model": 32, "ffn_dim": 64},
        "training": {"minutes": None, "validate_every": 10_000, "validate_unit": "steps"},
        "evaluation": {"metric": "none"},
    }
    for table, given in more.items():
        settings[table] = {**settings.get(table, {}), **given}
    return pellucid.train(recipe, train=train, run=run, steps=steps, **settings)


def generate(capfd: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, list[str], str]:
    """Return what `pellucid generate` ends with: its code, its lines, its messages."""
    capfd.readouterr()
    code = main(["generate", *map(str, words)])
    out, err = capfd.readouterr()
    return code, out.splitlines(), err


@pytest.mark.parametrize("twin", ["trailing_blank", "zero_width", "capital"])
def test_k1_twins_are_on_one_side(twin: str) -> None:
    config = load_recipe("g2p-demo")
    data = replace(config.data, train=(CASES / f"k1_twins_{twin}.tsv",), held_out=0.1)
    pairs = read_material(replace(config, data=data))
    seen = {plainest(pair.source) for pair in pairs.train}
    assert len(pairs.valid) > 20
    assert not seen & {plainest(pair.source) for pair in pairs.valid}


def test_k2_decomposed_hangul_is_the_same_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    run, valid = tmp_path / "run", CASES / "k2_valid_nfd.tsv"
    train = CASES / "k2_train_nfc.tsv"
    trained = small("g2p-demo", train, run, 20, data={"valid": (valid,)})
    assert "no token" not in caplog.text
    asked = (CASES / "k2_ask_nfd.txt").read_text(encoding="utf-8").splitlines()
    composed = [unicodedata.normalize("NFC", text) for text in asked]
    assert asked != composed
    code, lines, messages = generate(capfd, run, "--file", CASES / "k2_ask_nfd.txt")
    assert (code, lines) == (0, trained.generate(composed))
    assert "not seen" not in messages


def test_k3_capitals_have_the_sounds_of_the_word(capfd: pytest.CaptureFixture[str]) -> None:
    words = (CASES / "k3_capitals.txt").read_text(encoding="utf-8").lower().splitlines()
    code, lines, messages = generate(capfd, "g2p-en", "--file", CASES / "k3_capitals.txt")
    assert (code, lines) == (0, pellucid.load("g2p-en").generate(words))
    assert all(lines)
    assert "not seen" not in messages


def test_k4_white_space_round_a_word_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = generate(capfd, "g2p-en", "--file", CASES / "k4_white_space.txt")
    assert (code, lines) == (0, ["ətˈɛnʧᵊn"] * 4)


@pytest.mark.parametrize(("code", "mark"), [("utf-16-le", True), ("utf-16-le", False)])
def test_k5_utf_16_is_named(
    code: str, mark: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = CASES / "k5_utf16le_bom.txt"
    if not mark:
        (tmp_path / "words.txt").write_bytes(path.read_bytes()[2:])
        path = tmp_path / "words.txt"
    left, lines, messages = generate(capfd, "g2p-en", "--file", path)
    assert (left, lines) == (1, [])
    assert f"{path}: is UTF-16; save it as UTF-8" in messages


def test_k7_two_sentences_are_answered_as_one_by_one(tmp_path: Path) -> None:
    trained = small(
        "chatbot-ko", CASES / "k7_sentences_train.tsv", tmp_path / "run", 300,
        tokenizer={"kind": "word"},
        data={"held_out": 0.0, "batch_tokens": 1024},
        model={"d_model": 48, "ffn_dim": 96, "encoder_layers": 1, "decoder_layers": 1,
               "dropout": 0.0},
        training={"schedule": {"name": "cosine", "lr": 5e-3, "warmup": 30}},
    )  # fmt: skip
    texts, answers = zip(*rows("k7_two_sentences.tsv"), strict=True)
    assert trained.generate(texts) == list(answers)
    for text, answer in list(zip(texts, answers, strict=True))[::7]:
        for end in range(1, len(answer) + 1):  # a prefix goes over both
            assert trained.generate([text], prefix=answer[:end]) == [answer]


def trained_on(name: str, run: Path, **settings: Any) -> Any:
    tokenizer = {"kind": "char"}
    return small("gpt-ko", CASES / name, run, 200, data=settings, tokenizer=tokenizer)


def test_k8_names_are_drawn_from_nothing(tmp_path: Path) -> None:
    trained = trained_on("k8_names.txt", tmp_path / "run")
    drawn = [trained.generate([""], temperature=1.0, seed=seed)[0] for seed in range(5)]
    assert all(drawn)
    assert len(set(drawn)) > 1


def test_k9_a_frequent_line_is_likely(tmp_path: Path) -> None:
    trained = trained_on("k9_frequencies.txt", tmp_path / "run", held_out=0)
    assert trained.score([("", "emma")])[0] > -0.5


@pytest.mark.parametrize("stream", [False, True])
def test_k10_a_long_text_is_read_in_blocks(tmp_path: Path, stream: bool) -> None:
    trained = trained_on("k10_paragraphs.txt", tmp_path / "run", stream=stream)
    assert len(trained.generate([""], temperature=1.0, seed=1)[0]) > 20


def test_k11_swapped_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"200 pairs have 2 different .*other way round"):
        small("topics-ko", CASES / "k11_label_first.csv", tmp_path / "run", 1)


def test_k12_bleu_of_chinese_is_that_of_its_tokenizer() -> None:
    pytest.importorskip("sacrebleu")
    case = json.loads((CASES / "k12_zh.json").read_text(encoding="utf-8"))
    for tokenize in (None, "zh", "char"):
        found, *_ = bleu(case["outputs"], case["references"], False, tokenize)
        assert found.value == pytest.approx(case["right"][tokenize or "zh"], abs=0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def test_k13_a_field_is_neutral_followed_or_refused(server: Running) -> None:
    for line in (CASES / "k13_requests.jsonl").read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        body = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], **fields}
        status, _, answer = ask(server, "/v1/chat/completions", body)
        if fields.keys() & {"repetition_penalty", "seed", "top_p"}:
            assert status == 200, fields
        else:
            assert (status, answer["error"]["param"]) == (400, *fields)


def test_k14_white_space_comes_back(server: Running) -> None:
    languages = {"source": "de", "target": "en"}
    for line in (CASES / "k14_translate.jsonl").read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["q"]
        status, _, answer = ask(server, "/translate", {"q": text, **languages})
        white = [piece for piece in re.split(r"(\s+)", text) if piece.isspace()]
        assert status == 200
        if not text.strip():
            assert answer["translatedText"] == text
        assert answer["translatedText"].endswith(white[-1])


def test_k15_arrays_that_numpy_hands_out(capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(CASES / "k15_arrays.py"))
    mapped, swapped = capfd.readouterr().out.splitlines()
    assert mapped == "memmap of ids ok"
    assert "byte order, got >i4" in swapped


def test_k16_variants_of_a_word_are_on_one_side_and_comments_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = load_recipe("g2p-small")
    config = replace(config, tokenizer=replace(config.tokenizer, kind="word"))
    data = replace(config.data, train=(CASES / "k16_variants.tsv",), corpus="")
    pairs = read_material(replace(config, data=data))
    words = {re.sub(r"\(\d+\)$", "", pair.source) for pair in pairs.train}
    assert pairs.valid
    assert not words & {re.sub(r"\(\d+\)$", "", pair.source) for pair in pairs.valid}
    data = replace(data, train=(CASES / "k16_comment.tsv",))
    make_tokenizers(replace(config, data=data), read_material(replace(config, data=data)))
    assert "texts have what looks like a comment" in caplog.text


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod."])
def test_k17_names_of_a_wrapped_model_are_read(prefix: str, tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "fixtures" / "huggingface" / "gpt2", tmp_path / "gpt2")
    plain = pellucid.load(tmp_path / "gpt2").model.state_dict()
    weights = load_file(tmp_path / "gpt2" / "model.safetensors")
    named = {prefix + name: array for name, array in weights.items()}
    save_file(named, tmp_path / "gpt2" / "model.safetensors")
    model = pellucid.load(tmp_path / "gpt2").model
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, plain[name])
    with pytest.raises(StateError, match=re.escape(f"every name begins with {prefix}")):
        model.load_state_dict({prefix + name: array for name, array in plain.items()})


def test_k18_an_unknown_word_is_never_answered(tmp_path: Path) -> None:
    trained = small(
        "g2p-demo", CASES / "k18_unknown_words.tsv", tmp_path / "run", 60,
        tokenizer={"kind": "word", "vocab_size": 12}, data={"held_out": 0.0},
    )  # fmt: skip
    texts = [source for source, _ in rows("k18_unknown_words.tsv")[:20]]
    assert trained.target.unknown(target for _, target in rows("k18_unknown_words.tsv"))
    for settings in ({}, {"temperature": 1.5, "seed": 1}, {"beam": 3}):
        assert not any("<unk>" in answer for answer in trained.generate(texts, **settings))
    assert "target tokens (24.7%) were <unk>" in (tmp_path / "run/model/README.md").read_text()
