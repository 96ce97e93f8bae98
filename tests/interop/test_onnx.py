"""The same weights as ONNX graphs, run by onnxruntime: the same values, the same tokens."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.generation import SearchConfig, search
from pellucid.interop.onnx import OnnxModel, write_onnx
from pellucid.models import Seq2Seq, Seq2SeqConfig

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

V = 29


def shaken(**settings: Any) -> Seq2Seq:
    shape = {"d_model": 28, "num_attention_heads": 7, "ffn_dim": 41, "max_position_embeddings": 31}
    model = Seq2Seq(Seq2SeqConfig(V, V, **{**shape, **settings}), seed=5).eval()
    noise = np.random.default_rng(0)
    for parameter in model.parameters():
        shake = 0.15 * noise.standard_normal(parameter.shape)
        parameter.data = (parameter.data + shake).astype(np.float32)
    return model


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
    ],
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
    with pytest.raises(UserError, match="not a model written as ONNX"):
        OnnxModel(tmp_path)


@pytest.mark.parametrize(("package", "call"), [("onnx", write_onnx), ("onnxruntime", OnnxModel)])
def test_without_the_package_it_says_what_to_install(
    package: str, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package}: pip install '.*\[export\]'"):
        call(*([shaken()] if call is write_onnx else []), tmp_path / "model")
