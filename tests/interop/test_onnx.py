"""The same weights as ONNX graphs, run by onnxruntime: the same values, the same tokens."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.interop.onnx_model import OnnxModel
from tests.models.test_variants import VARIANTS

from pellucid import ops
from pellucid.core import dispatch
from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import SPECIALS
from pellucid.generation import SearchConfig, search
from pellucid.interop.onnx import write_onnx
from pellucid.models import (
    CausalLM,
    CausalLMConfig,
    Classifier,
    ClassifierConfig,
    MaskedLM,
    MaskedLMConfig,
    Seq2Seq,
    Seq2SeqConfig,
)

pytestmark = pytest.mark.oracle("onnx", "onnxruntime")

V = 29


SHAPE = {"d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 31}
TOGETHER: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "rms_norm",
    "activation_function": "geglu_tanh",
    "positions": "rotary",
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_factor": 3.0,
    "rope_original_positions": 11,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "qk_norm": True,
    "attention_scale": "learned",
    "attention_softcap": 2.0,
    "sliding_window": 5,
    "embedding_norm": True,
    "linear_bias": False,
    "qkv_bias": True,
}
DISTANCES: dict[str, Any] = {
    "positions": "relative",
    "relative_attention_num_buckets": 6,
    "relative_attention_max_distance": 5,
    "sliding_window": 9,
}


def noisy(model: Any) -> Any:
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.15 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model.eval()


def shaken(**settings: Any) -> Seq2Seq:
    model: Seq2Seq = noisy(Seq2Seq(Seq2SeqConfig(V, V, **{**SHAPE, **settings}), seed=5))
    return model


def named(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def sources(n: int) -> list[list[int]]:
    draw = np.random.default_rng(1)
    return [draw.integers(4, V, int(draw.integers(1, 19))).tolist() for _ in range(n)]


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "pre", "tie_embeddings": "all"},
        {"norm": "post", "final_norm": False, "encoder_layers": 1, "decoder_layers": 2},
        {"ffn_before": 1, "ffn_after": 2, "attention_scale": "d_k^2", "positions": "learned"},
        {"activation_function": "gelu", "embedding_scale": 2.5, "position_scale": 0.3},
        {"activation_function": "gelu_tanh", "output_bias": False},
        {"activation_function": "silu", "attention_scale": "learned"},
        {"activation_function": "leaky_relu", "layer_norm_eps": 0.1},
        {"end_token_ids": (5, 9), "suppress_tokens": (7,)},
        {"positions": "rotary_cross", "qk_norm": True},
        TOGETHER,
        DISTANCES,
    ],
    ids=named,
)
def test_every_step_and_every_answer_is_ours(settings: dict[str, Any], tmp_path: Path) -> None:
    model = shaken(**settings)
    write_onnx(model, tmp_path / "model")
    theirs = OnnxModel(tmp_path / "model", threads=1)
    source, tokens = Packed.of(sources(11)), np.full(11, 1)
    state, ours = theirs.start(source), model.start(source)
    for _ in range(7):
        (a, state), (b, ours) = theirs.step(state, tokens), model.step(ours, tokens)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)
        tokens = b.argmax(axis=1)
    for beam in (1, 4):
        config = SearchConfig(beam=beam, max_length=13)
        found, expected = (search(one, source, config) for one in (theirs, model))
        assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]


@pytest.mark.parametrize("settings", [*VARIANTS, TOGETHER], ids=named)
def test_a_decoder_alone_reads_texts_of_all_lengths_as_ours(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = CausalLMConfig(vocab_size=V, num_hidden_layers=2, **{**SHAPE, "norm": "pre"})
    config = replace(config, **({"num_attention_heads": 14, **settings}))
    model = noisy(CausalLM(config, seed=5))
    write_onnx(model, tmp_path / "model")
    theirs, texts = OnnxModel(tmp_path / "model", threads=1), Packed.of([*sources(4), []])
    (state, ours), tokens = (one.start(texts) for one in (theirs, model)), np.full(5, 1)
    for _ in range(4):
        (a, state), (b, ours) = theirs.step(state, tokens), model.step(ours, tokens)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)
        tokens = b.argmax(axis=1)
    assert theirs.room(texts).tolist() == model.room(texts).tolist()


def test_a_decoder_alone_is_searched_as_ours(tmp_path: Path) -> None:
    model = noisy(CausalLM(CausalLMConfig(vocab_size=V, num_hidden_layers=1, **SHAPE)))
    write_onnx(model, tmp_path / "model")
    config, texts = SearchConfig(beam=3, max_length=7), Packed.of(sources(5))
    with dispatch.reference():
        found, expected = (search(m, texts, config) for m in (OnnxModel(tmp_path / "model"), model))
    assert [h[0].tokens for h in found] == [h[0].tokens for h in expected]


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post", "type_vocab_size": 3, "pooler": True},
        {"head": False, "positions": "alibi", "sliding_window": 4, "embedding_norm": False},
        {"norm": "pre", "activation_function": "silu"},
        TOGETHER,
        DISTANCES,
    ],
    ids=named,
)
def test_an_encoder_alone_is_ours(settings: dict[str, Any], tmp_path: Path) -> None:
    import onnxruntime

    config = MaskedLMConfig(vocab_size=V, num_hidden_layers=2, **{**SHAPE, **settings})
    model = noisy(MaskedLM(config, seed=5))
    write_onnx(model, tmp_path / "model")
    runtime = onnxruntime.InferenceSession(str(tmp_path / "model" / "encoder.onnx"))
    text = Packed.of(sources(5))
    ids = text.padded(0)
    given = {"input_ids": ids, "attention_mask": (np.arange(ids.shape[1]) < text.lengths[:, None])}
    segments = None
    if config.type_vocab_size:
        given["token_type_ids"] = np.arange(ids.size).reshape(ids.shape) % 3
        segments = given["token_type_ids"][given["attention_mask"]]
    rows, _ = model.rows(text, segments)
    expected = {"rows": rows}
    if config.head:
        expected["log_p"] = ops.log_softmax(model(text, segments))[0]
    if config.pooler:
        expected["pooled"] = model.embeddings(text, "pooler", segments)
    names = [value.name for value in runtime.get_outputs()]
    made = runtime.run(names, {name: array.astype(np.int64) for name, array in given.items()})
    assert names == list(expected)
    for name, array in zip(names, made, strict=True):
        found = array if name == "pooled" else array[given["attention_mask"]]
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=2e-5)


def test_a_classifiers_pooler_is_ours(tmp_path: Path) -> None:
    import onnxruntime

    more = {"pooling": "pooler", "type_vocab_size": 3, "label_vocab_size": 11}
    config = ClassifierConfig(vocab_size=V, num_hidden_layers=2, **{**SHAPE, **more})
    model = noisy(Classifier(config, seed=5))
    write_onnx(model, tmp_path / "model")
    runtime = onnxruntime.InferenceSession(str(tmp_path / "model" / "encoder.onnx"))
    text = Packed.of(sources(5))
    ids = text.padded(0)
    there = (np.arange(ids.shape[1]) < text.lengths[:, None]).astype(np.int64)
    given = {"input_ids": ids, "attention_mask": there, "token_type_ids": np.zeros_like(ids)}
    (log_p,) = runtime.run(["log_p"], given)
    expected = ops.log_softmax(model(text)[:, len(SPECIALS) :])[0]
    np.testing.assert_allclose(log_p, expected, rtol=0, atol=1e-5)


def test_a_write_that_fails_leaves_nothing_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnx

    def full(_: Any, path: str) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(onnx, "save_model", full)
        with pytest.raises(UserError, match="model: cannot be written: No space left on device"):
            write_onnx(shaken(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    write_onnx(shaken(), tmp_path / "model", {"tokenizer.json": b"{}"})
    names = ["config.json", "decoder.onnx", "encoder.onnx", "tokenizer.json"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == names
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        write_onnx(shaken(), tmp_path)
    with pytest.raises(UserError, match="without layers"):
        write_onnx(shaken(decoder_layers=0), tmp_path / "model")


def test_without_the_package_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"onnx: .*pip install .*'onnx>="):
        write_onnx(shaken(), tmp_path / "model")
