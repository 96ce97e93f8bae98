"""Every reader of models refuses, by name, the parts that it does not know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pellucid import nn
from pellucid.apps.view import trace
from pellucid.compiled import pack
from pellucid.generation import compile_model
from pellucid.interop import ctranslate2, onnx
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.walk import Reader, UnsupportedError
from pellucid.nn.attention import Attention
from pellucid.nn.blocks import TransformerLayer
from pellucid.ops import rules
from pellucid.ops.norms import NORMS

CONFIG = Seq2SeqConfig(11, 11, d_model=8, num_attention_heads=2, ffn_dim=13)
READERS = [pack.READER, onnx.READER, ctranslate2.READER]


class Convolution(nn.Linear):
    """A module that no reader knows."""


def first_layer(model: Seq2Seq) -> TransformerLayer:
    layer: TransformerLayer = model.encoder.layers[0]
    return layer


@pytest.fixture
def strange() -> Seq2Seq:
    """A model whose activation no reader knows."""
    model = Seq2Seq(CONFIG)
    first_layer(model).activation = "cosine"
    return model


@pytest.mark.oracle("onnx")
def test_onnx_refuses_an_unknown_activation(strange: Seq2Seq, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"ONNX .* activation = 'cosine' \(supported: relu"):
        onnx.write_onnx(strange, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_compiled_generates_by_itself(strange: Seq2Seq) -> None:
    assert compile_model(strange) is strange
    with pytest.raises(UnsupportedError, match=r"Compiled decoding .* activation = 'cosine'"):
        pack.pack(strange, "float32")


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_readers_refuse_what_they_do_not_know(reader: Reader) -> None:
    def refused(model: Seq2Seq, message: str) -> None:
        with pytest.raises(UnsupportedError, match=rf"{reader.name} .*{message}"):
            reader.read(model)

    reader.read(Seq2Seq(CONFIG))
    model = Seq2Seq(CONFIG)
    first_layer(model).norm1.kind = "max_norm"
    refused(model, r"LayerNorm kind = 'max_norm' \(supported: layer_norm")
    model = Seq2Seq(CONFIG)
    first_layer(model).linear1 = Convolution(8, 13)
    refused(model, r"Convolution \(encoder\.layers\.0\.linear1\)")

    def spiral(x: object) -> object:
        return x

    model = Seq2Seq(CONFIG)
    own = replace(first_layer(model).self_attn.config, rotate=spiral)  # type: ignore[arg-type]
    first_layer(model).self_attn = Attention(own)
    refused(model, r"Attention rotate = spiral \(supported: None, rotary")


def test_compiled_decoding_needs_one_attention_in_all_layers() -> None:
    model = Seq2Seq(CONFIG)
    own = first_layer(model).self_attn.config
    first_layer(model).self_attn = Attention(replace(own, rule=rules.window(3)))
    with pytest.raises(UnsupportedError, match="needs one self-attention in all blocks"):
        pack.pack(model, "float32")


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("reader", [*READERS, trace.SHOWN])
def test_a_norm_is_read_or_refused_by_name(norm: str, reader: Reader) -> None:
    model = Seq2Seq(replace(CONFIG, norm_type=norm))
    if norm in (reader.settings["kind"] or NORMS):
        reader.read(model)
    else:
        with pytest.raises(UnsupportedError, match=f"Norm kind = '{norm}'"):
            reader.read(model)


@pytest.mark.parametrize("reader", [*READERS, trace.SHOWN])
def test_another_rule_is_refused_by_name(reader: Reader) -> None:
    model = Seq2Seq(CONFIG)
    own = first_layer(model).self_attn.config
    first_layer(model).self_attn = Attention(replace(own, rule=rules.prefix(np.array([2]))))
    with pytest.raises(UnsupportedError, match="Attention rule = Prefix"):
        reader.read(model)


@pytest.mark.parametrize("reader", [pack.READER, onnx.READER, trace.SHOWN])
def test_a_soft_cap_after_distances_is_refused(reader: Reader) -> None:
    model = Seq2Seq(CONFIG)
    own = first_layer(model).self_attn.config
    first_layer(model).self_attn = Attention(replace(own, rule=rules.soft_cap(2.0) | rules.alibi))
    reader.read(model)
    first_layer(model).self_attn = Attention(replace(own, rule=rules.alibi | rules.soft_cap(2.0)))
    with pytest.raises(UnsupportedError, match="a soft cap after distances"):
        reader.read(model)
