"""Every reader of descriptions refuses, by name, the parts that it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.test_describe import changed

from pellucid.compiled import pack
from pellucid.generation import compile_model
from pellucid.interop import ctranslate2, onnx
from pellucid.models import Seq2Seq, Seq2SeqConfig
from pellucid.models.describe import Positions, Reader, Record, UnsupportedError, describe

CONFIG = Seq2SeqConfig(11, 11, d_model=8, num_attention_heads=2, ffn_dim=13)
READERS = [pack.READER, onnx.READER, ctranslate2.READER]


@pytest.fixture
def strange() -> Iterator[Seq2Seq]:
    """A model whose activation no reader knows."""
    model = Seq2Seq(CONFIG)
    object.__setattr__(model.config, "activation_function", "cosine")
    yield model
    object.__setattr__(model.config, "activation_function", "relu")


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
    @dataclass(frozen=True, kw_only=True)
    class Convolution(Record):
        width: int

    records = describe(CONFIG)
    reader.check(records)
    spiral = [
        replace(record, kind="spiral") if isinstance(record, Positions) else record
        for record in records
    ]
    strange: list[tuple[Any, str]] = [
        (changed(records, kind="max_norm"), r"Norm kind = 'max_norm' \(supported: layer_norm"),
        (
            spiral,
            r"Positions kind = 'spiral' \(supported: sinusoidal, sinusoidal_halves, learned",
        ),
        ([*records, Convolution(stack="decoder", width=3)], r"Convolution \(supported: Embedding"),
    ]
    for unknown, message in strange:
        with pytest.raises(UnsupportedError, match=rf"{reader.name} .*{message}"):
            reader.check(unknown)
