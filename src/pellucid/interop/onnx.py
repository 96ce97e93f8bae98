"""An encoder-decoder as two ONNX graphs, and such graphs as a model that generates.

encoder.onnx: input_ids, attention_mask (N, S) -> memory.i.key, memory.i.value (N, H, S, D) of every
    decoder layer i
decoder.onnx: input_ids (N, 1), attention_mask (N, S), memory.i.key, memory.i.value, past.i.key,
    past.i.value (N, H, T, D) -> log_p (N, V), present.i.key, present.i.value (N, H, T + 1, D)

A first step has an empty past, T = 0. attention_mask is 1 where a source has a token; every source
has one at least. config.json next to them is the model's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.core.files import folder_atomically
from pellucid.interop.onnx_graph import Graph, package
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.describe import (
    GENERATIVE,
    Attention,
    Description,
    FeedForward,
    Output,
    Reader,
    Residual,
    Stack,
    UnsupportedError,
    describe,
    position_table,
)
from pellucid.models.seq2seq import Seq2Seq
from pellucid.ops.activations import ACTIVATIONS

Array = np.ndarray

READER = Reader(
    "ONNX export",
    {
        **GENERATIVE,
        FeedForward: {"activation": [name for name, row in ACTIVATIONS.items() if row.onnx]},
    },
)

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"


def write_onnx(
    model: Seq2Seq, folder: Path, beside: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write encoder.onnx, decoder.onnx, config.json and the files `beside`: all of them or none.

    Raises `UserError` when onnx is not installed, and when the folder already exists or cannot be
    written; `UnsupportedError` for a model with a part that the graphs cannot hold, and for one
    without decoder layers, which has no past.
    """
    onnx = package("onnx")
    records = describe(model)
    stacks = [READER.stack(records, name) for name in ("encoder", "decoder")]
    encoder, decoder = (_Written(model, records, stack) for stack in stacks if stack is not None)
    if not decoder.stack.blocks:
        raise UnsupportedError("a decoder without layers cannot be written as ONNX: it has no past")
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    graphs = {ENCODER: _encoder(onnx, encoder, decoder), DECODER: _decoder(onnx, decoder)}
    config = json.dumps(asdict(model.config), indent=2) + "\n"
    with folder_atomically(folder) as made:
        for name, graph in graphs.items():
            onnx.save_model(graph, str(made / name))
        for name, content in {CONFIG: config.encode(), **beside}.items():
            (made / name).write_bytes(content)


@dataclass(frozen=True)
class _Written:
    """One stack of the model that is written."""

    model: Seq2Seq
    records: Description
    stack: Stack

    @property
    def state(self) -> dict[str, Array]:
        """The model's arrays."""
        return self.model.state_dict()

    def attentions(self, over: str) -> list[Attention]:
        """Return the attentions over these rows, layer by layer."""
        sublayers = (block.sublayer for block in self.stack.blocks)
        return [each for each in sublayers if isinstance(each, Attention) and each.over == over]


def _encoder(onnx: Any, encoder: _Written, decoder: _Written) -> Any:
    g = Graph(onnx, encoder.state)
    g.input("input_ids", ["N", "S"], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    length = g("Gather", g("Shape", "input_ids"), g.constant((1,), np.int64))
    table = g.constant(position_table(encoder.stack.positions, g.state, np.float32))
    positions = g("Slice", table, g.constant((0,), np.int64), length)
    x, mask = g.embed("input_ids", encoder.stack, positions), g.mask()

    def attend(block: Residual, x: str) -> str:
        attention = block.sublayer
        assert isinstance(attention, Attention)
        q, k, v = g.projected(x, attention, slice(3))
        return g.attend(q, k, v, mask, attention)

    x = g.run(x, encoder.stack, attend)
    for i, attention in enumerate(decoder.attentions("memory")):
        keys_values = g.projected(x, attention, slice(1, 3))
        for name, made in zip(("key", "value"), keys_values, strict=True):
            g("Identity", made, output=f"memory.{i}.{name}")
            g.output(f"memory.{i}.{name}", ["N", attention.heads, "S", None])
    return g.model("encoder")


def _decoder(onnx: Any, decoder: _Written) -> Any:
    g = Graph(onnx, decoder.state)
    g.input("input_ids", ["N", 1], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    own = decoder.attentions("self")
    for i, attention in enumerate(own):
        for name in ("key", "value"):
            g.input(f"memory.{i}.{name}", ["N", attention.heads, "S", attention.head_width])
            g.input(f"past.{i}.{name}", ["N", attention.heads, "T", attention.head_width])
    generated = g("Gather", g("Shape", "past.0.key"), g.constant((2,), np.int64))
    table = g.constant(position_table(decoder.stack.positions, g.state, np.float32))
    x = g.embed("input_ids", decoder.stack, g("Gather", table, generated))
    mask = g.mask()

    def attend(block: Residual, x: str) -> str:
        attention, i = block.sublayer, block.layer
        assert isinstance(attention, Attention)
        if attention.over == "memory":
            (q,) = g.projected(x, attention, slice(1))
            return g.attend(q, f"memory.{i}.key", f"memory.{i}.value", mask, attention)
        q, k, v = g.projected(x, attention, slice(3))
        k = g("Concat", f"past.{i}.key", k, output=f"present.{i}.key", axis=2)
        v = g("Concat", f"past.{i}.value", v, output=f"present.{i}.value", axis=2)
        return g.attend(q, k, v, None, attention)

    x = g.run(x, decoder.stack, attend)
    (output,) = (record for record in decoder.records if isinstance(record, Output))
    logits = g("Squeeze", g.linear(x, output.linear), g.constant((1,), np.int64))
    g("LogSoftmax", logits, output="log_p", axis=-1)
    g.output("log_p", ["N", output.linear.weight.shape[0]])
    for i, attention in enumerate(own):
        for name in ("key", "value"):
            g.output(f"present.{i}.{name}", ["N", attention.heads, None, attention.head_width])
    return g.model("decoder")


@dataclass(frozen=True)
class _State:
    """Keys and values of the source, (N, H, S, D), its mask, and those so far, (N, H, T, D)."""

    memory: dict[str, Array]
    past: dict[str, Array]

    def select(self, rows: Array) -> _State:
        """Return the state of these hypotheses, in this order."""
        return _State(
            {name: array[rows] for name, array in self.memory.items()},
            {name: array[rows] for name, array in self.past.items()},
        )


class OnnxModel:
    """What `write_onnx` wrote, run by onnxruntime; `generation.search` takes it like a model.

    Raises `UserError` when onnxruntime is not installed or the folder cannot be opened.
    """

    def __init__(self, folder: Path, threads: int = 0) -> None:
        runtime = package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            values.pop("model_type")
            self.config = Seq2SeqConfig(**values)
            self._encoder, self._decoder = (
                runtime.InferenceSession(
                    str(folder / name), options, providers=["CPUExecutionProvider"]
                )
                for name in (ENCODER, DECODER)
            )
        except Exception as error:  # the runtime raises classes of its own for every fault
            raise UserError(f"{folder}: not a model written as ONNX ({error})") from None

    @property
    def dtype(self) -> Any:
        """float32."""
        return np.dtype(np.float32)

    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""
        return np.full(len(source), self.config.max_position_embeddings - 1)

    def start(self, source: Packed) -> _State:
        """Return the state before the first token, one hypothesis per source."""
        ids = source.padded(self.config.pad_token_id)
        mask = (np.arange(ids.shape[1]) < source.lengths[:, None]).astype(np.int64)
        names = [value.name for value in self._encoder.get_outputs()]
        made = self._encoder.run(names, {"input_ids": ids, "attention_mask": mask})
        config = self.config
        shape = (len(ids), config.num_attention_heads, 0, config.head_width)
        past = {name.replace("memory", "past"): np.zeros(shape, np.float32) for name in names}
        return _State(
            dict(zip(("attention_mask", *names), (mask, *made), strict=True)),
            past,
        )

    def step(self, state: _State, tokens: Array) -> tuple[Array, _State]:
        """Feed one token to every hypothesis; return (log p of the next (B, V), state)."""
        names = [value.name for value in self._decoder.get_outputs()]
        ids = np.asarray(tokens, np.int64)[:, None]
        log_p, *present = self._decoder.run(names, {"input_ids": ids, **state.memory, **state.past})
        past = {
            name.replace("present", "past"): array
            for name, array in zip(names[1:], present, strict=True)
        }
        return log_p, _State(state.memory, past)
