"""A decoder alone and an encoder alone, from the command line: train, resume, use, score."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tests.apps.cli.test_main import failed, pellucid

import pellucid as package
from pellucid import ops
from pellucid.apps.cli.export import export
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.core.settings import to_mapping
from pellucid.tasks.folder import load_model
from pellucid.training.config import RunConfig, load_recipe
from pellucid.training.events import Event, Stepped
from pellucid.training.experiment import train_run

FIXTURES = Path(__file__).parents[2] / "fixtures" / "huggingface"
SETTINGS = """
[tokenizer]
kind = "char"
[model]
model_type = "{}"
d_model = 12
num_attention_heads = 3
num_hidden_layers = 2
ffn_dim = 17
max_position_embeddings = 19
[data]
train = ["texts.txt"]
max_tokens = 17
batch_tokens = 256
[training]
steps = 6
validate_unit = "steps"
validate_every = 2
"""
KINDS = {"gpt": "pellucid-causal-lm", "bert": "pellucid-masked-lm"}
each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with settings and texts, and a run of each kind trained on them."""
    folder = tmp_path_factory.mktemp("halves")
    words = ["".join("abcdefg"[(n // 7**k) % 7] for k in range(4)) for n in range(200)]
    (folder / "texts.txt").write_text("\n".join(words), encoding="utf-8")
    for kind, model_type in KINDS.items():
        (folder / f"{kind}.toml").write_text(SETTINGS.format(model_type), encoding="utf-8")
        done = pellucid("train", f"{kind}.toml", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "texts to learn from, held out" in done.stdout
    return folder


def test_a_gpt_continues_texts_in_every_way(place: Path) -> None:
    run = place / "runs" / "gpt"
    done = pellucid("generate", run, "abc", "d", "--max-length", "5")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("abc")
    assert second.startswith("d")
    piped = pellucid("generate", run, "--max-length", "5", stdin="abc\n\nd\n")
    nothing = pellucid("generate", run, "", "--max-length", "5").stdout.splitlines()[0]
    assert nothing  # an empty text is continued from the begin token
    assert piped.stdout.splitlines() == [first, nothing, second]
    best = pellucid("generate", run, "abc", "--beam", "4", "--best", "3", "--max-length", "5")
    assert len(best.stdout.rstrip("\n").split("\t")) == 3
    drawn = [
        pellucid("generate", run, "abc", "--temperature", "2", "--seed", s, "--max-length", "9")
        for s in "112"
    ]
    assert drawn[0].stdout == drawn[1].stdout != drawn[2].stdout
    record = json.loads(pellucid("generate", run, "abc", "--json").stdout)
    (answer,) = record["parts"][0]["answers"]
    assert record["parts"][0]["source_tokens"] == ["a", "b", "c"]
    assert answer["text"] == "abc" + "".join(answer["tokens"])
    assert len(answer["alignment"]) == len(answer["tokens"])


def test_a_bert_fills_masks(place: Path) -> None:
    run = place / "runs" / "bert"
    done = pellucid("generate", run, "ab[MASK]d", "[MASK]b[MASK]d", "")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert lines[3] == ""
    for line in lines[:3]:
        guesses = [guess.rsplit(" ", 1) for guess in line.split("\t")]
        assert len(guesses) == 5
        shares = [float(share.removesuffix("%")) for _, share in guesses]
        assert shares == sorted(shares, reverse=True)
    record = json.loads(pellucid("generate", run, "a[MASK]c", "--json", "--best", "3").stdout)
    (mask,) = record["masks"]
    assert len(mask) == 3
    assert all(g["text"] == f"a{g['token']}c" for g in mask if len(g["token"]) == 1)
    (place / "masks.txt").write_text("a[MASK]\nb[MASK]\n", encoding="utf-8")
    assert len(pellucid("generate", run, "--file", place / "masks.txt").stdout.splitlines()) == 2


def test_what_a_bert_cannot_fill_is_named_and_the_rest_goes_on(place: Path) -> None:
    run = place / "runs" / "bert"
    lines = f"abc\na[MASK]\n{'a' * 40}[MASK]\n".encode() + b"\xff[MASK]\n"
    done = pellucid("generate", run, stdin=lines)
    failed(done, 1, "line 1: no [MASK] to fill", "line 3: 41 tokens", "line 4: not UTF-8")
    assert [bool(line) for line in done.stdout.splitlines()] == [False, True, False, False]
    strict = pellucid("generate", run, "--strict", "a[MASK]", "abc", "a[MASK]")
    failed(strict, 1, "text 2: no [MASK] to fill")
    assert [bool(line) for line in strict.stdout.splitlines()] == [True, False]
    as_json = pellucid("generate", run, "--json", stdin=lines).stdout.splitlines()
    assert ["error" in json.loads(line) for line in as_json] == [True, False, True, True]
    failed(pellucid("generate", run, "a[MASK]", "--best", "0"), 2, "best must be at least 1")
    failed(pellucid("generate", run, "a[MASK]", "--beam", "4"), 2, "--beam")
    failed(pellucid("generate", run, "--file", place / "none.txt"), 1, "none.txt: No such file")


def test_too_long_a_text_is_refused_not_truncated(place: Path) -> None:
    done = pellucid("generate", place / "runs" / "gpt", "a" * 40, "ab")
    failed(done, 1, "text 1: 40 tokens, more than the 17 that this model can read")
    first, second = done.stdout.splitlines()
    assert first == ""
    assert second.startswith("ab")


def test_a_text_that_leaves_no_room_for_the_prefix_is_refused(place: Path) -> None:
    done = pellucid("generate", place / "runs" / "gpt", "a" * 15, "ab", "--prefix", "cdef")
    failed(done, 1, "text 1: 15 tokens and room for 3 more; the prefix has 4")
    first, second = done.stdout.splitlines()
    assert first == ""
    assert second.startswith("abcdef")


@each
def test_they_are_scored_by_their_loss(place: Path, kind: str) -> None:
    run = place / "runs" / kind
    scores = json.loads(pellucid("evaluate", run, "--json", cwd=place).stdout)
    assert scores["perplexity"] == pytest.approx(np.exp(scores["loss"]))
    assert ("accuracy" in scores) == (kind == "bert")
    card = (run / "model" / "README.md").read_text(encoding="utf-8")
    assert f"{scores['loss']:.4f} nats" in card
    own = pellucid("evaluate", run / "model", "--data", place / "texts.txt")
    assert own.returncode == 0, own.stderr
    assert "texts    200" in own.stdout or "texts 200" in own.stdout
    failed(pellucid("evaluate", run, "--metric", "bleu", cwd=place), 2, "encoder-decoders")


@each
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    place: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    config = load_recipe(f"{kind}.toml")

    def stop(event: Event) -> None:
        if isinstance(event, Stepped) and event.step == 5:
            raise InterruptedError

    with package.reference():
        with pytest.raises(InterruptedError):
            train_run(config, tmp_path / "run", listeners=[stop])
        resumed = train_run(load_recipe(str(tmp_path / "run")), tmp_path / "run", resume=True)
        whole = train_run(config, tmp_path / "whole")
    expected = whole.trained.model.state_dict()
    for name, array in resumed.trained.model.state_dict().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_settings_without_a_kind_of_model_are_an_encoder_decoders(tmp_path: Path) -> None:
    """Runs begun before there were other models have no model_type; they must go on."""
    (tmp_path / "pairs.tsv").write_text("a\tb\n" * 50, encoding="utf-8")
    config = RunConfig()
    assert to_mapping(config)["model"]["model_type"] == "pellucid-seq2seq"
    (tmp_path / "old.toml").write_text(
        SETTINGS.replace('model_type = "{}"\n', "").replace("num_hidden_layers = 2\n", ""),
        encoding="utf-8",
    )
    done = pellucid(
        "train", "old.toml", "--data.train", "pairs.tsv", "--data.held-out", "0", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "runs" / "old" / "config.toml").read_text(encoding="utf-8")
    assert 'model_type = "pellucid-seq2seq"' in written
    done = pellucid("train", "runs/old", "--resume", "--training.steps", "6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_settings_of_another_kind_of_model_are_refused(place: Path) -> None:
    done = pellucid("train", "gpt.toml", "--model.encoder-layers", "2", cwd=place)
    failed(done, 2, "--model.encoder-layers")
    wrong = place / "wrong.toml"
    wrong.write_text(SETTINGS.format("pellucid-causal-ml"), encoding="utf-8")
    failed(
        pellucid("train", wrong), 2, "model.model_type: no 'pellucid-causal-ml'",
        "did you mean pellucid-causal-lm?",
    )  # fmt: skip
    wrong.write_text(SETTINGS.format(KINDS["bert"]) + '[evaluation]\nmetric = "bleu"\n')
    failed(pellucid("train", wrong), 2, 'metric = "bleu" is for encoder-decoders')
    wrong.write_text(SETTINGS.format(KINDS["bert"]) + "\n[model.x]\ny = 1\n")
    failed(pellucid("train", wrong), 2, "unknown setting model.x")


def test_what_an_exporter_cannot_write_says_so(place: Path) -> None:
    with pytest.raises(UserError, match="is a MaskedLM, which cannot be exported to ctranslate2"):
        export(place / "runs" / "bert", place / "exported", to="ctranslate2")


@each
def test_a_model_folder_is_checked_and_stored_in_fewer_bytes(
    place: Path, tmp_path: Path, kind: str
) -> None:
    model = place / "runs" / kind / "model"
    done = pellucid("quantize", model, tmp_path / "small", "--weights", "int8")
    assert done.returncode == 0, done.stderr
    trained, small = load_model(model).model.state_dict(), load_model(tmp_path / "small").model
    for name, array in small.state_dict().items():
        assert np.abs(array - trained[name]).max() <= np.abs(trained[name]).max() / 127
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    config = json.loads((broken / "config.json").read_text(encoding="utf-8"))
    (broken / "config.json").write_text(json.dumps(config | {"vocab_size": 97}), encoding="utf-8")
    failed(pellucid("generate", broken, "a"), 1, "tokenizer.json", "belongs to another model")
    (broken / "config.json").write_text(json.dumps(config | {"model_type": "pellucid-rnn"}))
    done = pellucid("generate", broken, "a")
    failed(done, 1, "a model of the kind pellucid-rnn, which is not known", "--import FILE")
    assert "did you mean" not in done.stderr


def test_load_reads_runs_huggingface_folders_and_bare_weights(place: Path, tmp_path: Path) -> None:
    ours = package.load(place / "runs" / "gpt")
    assert ours.generate(["ab"])[0].startswith("ab")
    theirs = package.load(FIXTURES / "gpt2")
    assert theirs.model.config.vocab_size == 97
    with pytest.raises(UserError, match=r"has no tokenizer\.json"):
        theirs.generate(["ab"])
    arrays = package.load(place / "runs" / "gpt" / "model" / "model.safetensors")
    layer = package.nn.Linear(17, 12)
    prefix = "decoder.layers.0.linear2."
    names = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    layer.load_state_dict(names)
    assert arrays["output.weight"] is arrays["embed.tokens.weight"]  # tied, and stored once
    with pytest.raises(UserError, match="no such folder"):
        package.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="cannot be read"):
        package.load(tmp_path / "nowhere.safetensors")


def with_tokenizer(folder: Path, core: tokenizers.Tokenizer) -> Path:
    """A small Hugging Face folder, and a tokenizer.json in it."""
    shutil.copytree(FIXTURES / folder.name, folder)
    core.save(str(folder / "tokenizer.json"))
    return folder


def test_a_huggingface_bert_fills_masks(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "##s", "."]
    vocab = {word: i for i, word in enumerate(words)}
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    core.normalizer = tokenizers.normalizers.BertNormalizer()
    core.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    core.decoder = tokenizers.decoders.WordPiece()
    core.add_special_tokens(words[:5])
    core.enable_truncation(3)  # as all-MiniLM-L6-v2's file has it; here nothing is cut off
    folder = with_tokenizer(tmp_path / "bert", core)
    done = pellucid("generate", folder, "The [MASK] sats.", "--json", "--best", "97")
    (mask,) = json.loads(done.stdout)["masks"]
    model = package.load(folder).model
    rows = model(Packed.of([[2, 5, 4, 7, 8, 9, 3]]))
    p = np.exp(ops.log_softmax(rows[2:3])[0][0])
    np.testing.assert_allclose([g["p"] for g in mask], np.sort(p)[::-1], atol=1e-6)
    texts = {g["token"]: g["text"] for g in mask}
    assert texts["cat"] == "The cat sats."
    assert texts["##s"] == "Thes sats."


def test_a_huggingface_gpt_continues_without_a_begin_token(tmp_path: Path) -> None:
    vocab = {chr(33 + i): i for i in range(94)} | {"Ġ": 94, "Ċ": 95, "ab": 96}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [("a", "b")]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    folder = with_tokenizer(tmp_path / "gpt2", core)
    done = pellucid("generate", folder, "cab d", "--max-length", "5")
    assert done.returncode == 0, done.stderr
    trained = package.load(folder)
    ids = core.encode("cab d").ids
    assert ids == [66, 96, 94, 67]
    generated = list(ids)
    for _ in range(5):
        generated.append(int(trained.model(Packed.of([generated]))[-1].argmax()))
        if generated[-1] == 2:
            generated.pop()
            break
    assert done.stdout.rstrip("\n") == " ".join(core.decode(generated).splitlines())
    texts = tmp_path / "texts.txt"
    texts.write_text("abc\ncab d\n", encoding="utf-8")
    scores = json.loads(pellucid("evaluate", folder, "--data", texts, "--json").stdout)
    assert scores["texts"] == 2
    other = tokenizers.Tokenizer(tokenizers.models.BPE({str(i): i for i in range(98)}, []))
    other.save(str(folder / "tokenizer.json"))
    failed(
        pellucid("generate", folder, "a"),
        1,
        "has ids up to 97, the model 97 tokens",
        "belongs to another model",
    )


def test_huggingface_folders_are_used_from_the_command_line(tmp_path: Path) -> None:
    failed(pellucid("generate", FIXTURES / "gpt2", "ab"), 1, "has no tokenizer.json")
    failed(pellucid("generate", FIXTURES / "bert", "[MASK]"), 1, "has no tokenizer.json")
    failed(pellucid("generate", tmp_path, "ab"), 1, "neither a model")
