"""A `Seq2Seq` as two ONNX graphs, and such graphs as a model that `decoding` can search with.

encoder.onnx: input_ids, attention_mask (N, S) -> memory.i.key, memory.i.value (N, H, S, D) of every
    decoder layer i
decoder.onnx: input_ids (N, 1), attention_mask (N, S), memory.i.key, memory.i.value, past.i.key,
    past.i.value (N, H, T, D) -> log_p (N, V), present.i.key, present.i.value (N, H, T + 1, D)

A first step has an empty past, T = 0. attention_mask is 1 where a source has a token; every source
has one at least. config.json beside them is the model's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.core.files import folder_atomically
from pellucid.interop.onnx_graph import Graph, package
from pellucid.models.config import Seq2SeqConfig
from pellucid.models.seq2seq import Seq2Seq
from pellucid.nn import LayerNorm, MultiheadAttention

Array = np.ndarray

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"


def write_onnx(
    model: Seq2Seq, folder: Path, beside: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write encoder.onnx, decoder.onnx, config.json and the files `beside`: all of them or none.

    Raises `UserError` when onnx is not installed, when the folder is there already or cannot be
    written, and for a model without decoder layers, whose past would have nowhere to stand.
    """
    onnx = package("onnx")
    if not model.config.decoder_layers:
        raise UserError("a decoder without layers cannot be written as ONNX: it has no past")
    if folder.exists():
        raise UserError(f"{folder}: is there already; choose another folder")
    encoder, decoder = _encoder(model, onnx), _decoder(model, onnx)
    config = json.dumps(asdict(model.config), indent=2) + "\n"
    with folder_atomically(folder) as made:
        onnx.save_model(encoder, str(made / ENCODER))
        onnx.save_model(decoder, str(made / DECODER))
        for name, content in {CONFIG: config.encode(), **beside}.items():
            (made / name).write_bytes(content)


def _encoder(model: Seq2Seq, onnx: Any) -> Any:
    g, config = Graph(onnx), model.config
    g.input("input_ids", ["N", "S"], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    length = g("Gather", g("Shape", "input_ids"), g.constant((1,), np.int64))
    places = g("Slice", g.constant(model.source.places), g.constant((0,), np.int64), length)
    x, mask = g.embed("input_ids", model.source, places), g.mask()

    def look_at(attention: MultiheadAttention) -> Any:
        def sublayer(x: str) -> str:
            q, k, v = (
                g.heads(g.linear(x, weight, bias), config)
                for weight, bias in attention.folded_projections()
            )
            return g.layer(g.attention(q, k, v, mask, config), attention.out_proj)

        return sublayer

    for layer in model.encoder.layers:
        x = g.blocks(x, _ordered(g, layer, [look_at(layer.self_attn)], config), config)
    if model.encoder.norm is not None:
        x = g.norm(x, cast(LayerNorm, model.encoder.norm))
    for i, layer in enumerate(model.decoder.layers):
        _, *keys_values = layer.multihead_attn.projections()
        for name, (weight, bias) in zip(("key", "value"), keys_values, strict=True):
            made = g.heads(g.linear(x, weight, bias), config)
            g("Identity", made, output=f"memory.{i}.{name}")
            g.output(f"memory.{i}.{name}", ["N", config.num_attention_heads, "S", None])
    return g.model("encoder")


def _decoder(model: Seq2Seq, onnx: Any) -> Any:
    g, config = Graph(onnx), model.config
    heads = config.num_attention_heads
    g.input("input_ids", ["N", 1], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    for i in range(config.decoder_layers):
        for name in ("key", "value"):
            g.input(f"memory.{i}.{name}", ["N", heads, "S", config.head_width])
            g.input(f"past.{i}.{name}", ["N", heads, "T", config.head_width])
    said = g("Gather", g("Shape", "past.0.key"), g.constant((2,), np.int64))
    places = g("Gather", g.constant(model.target.places), said)
    x, mask = g.embed("input_ids", model.target, places), g.mask()

    def look_back(attention: MultiheadAttention, i: int) -> Any:
        def sublayer(x: str) -> str:
            q, k, v = (
                g.heads(g.linear(x, weight, bias), config)
                for weight, bias in attention.folded_projections()
            )
            k = g("Concat", f"past.{i}.key", k, output=f"present.{i}.key", axis=2)
            v = g("Concat", f"past.{i}.value", v, output=f"present.{i}.value", axis=2)
            return g.layer(g.attention(q, k, v, None, config), attention.out_proj)

        return sublayer

    def look_at_memory(attention: MultiheadAttention, i: int) -> Any:
        def sublayer(x: str) -> str:
            q = g.heads(g.linear(x, *attention.folded_projections().q), config)
            k, v = f"memory.{i}.key", f"memory.{i}.value"
            return g.layer(g.attention(q, k, v, mask, config), attention.out_proj)

        return sublayer

    for i, layer in enumerate(model.decoder.layers):
        looks = [look_back(layer.self_attn, i), look_at_memory(layer.multihead_attn, i)]
        x = g.blocks(x, _ordered(g, layer, looks, config), config)
    if model.decoder.norm is not None:
        x = g.norm(x, cast(LayerNorm, model.decoder.norm))
    logits = g("Squeeze", g.layer(x, model.output), g.constant((1,), np.int64))
    g("LogSoftmax", logits, output="log_p", axis=-1)
    g.output("log_p", ["N", config.target_vocab_size])
    for i in range(config.decoder_layers):
        for name in ("key", "value"):
            g.output(f"present.{i}.{name}", ["N", heads, None, config.head_width])
    return g.model("decoder")


def _ordered(
    g: Graph, layer: Any, looks: Sequence[Any], config: Seq2SeqConfig
) -> list[tuple[Any, LayerNorm]]:
    """Return a layer's sublayers with their norms, in the order of `models.layers`."""
    norms = [layer.norm1, layer.norm2, layer.norm3] if len(looks) == 2 else [layer.norm1]
    last = norms[-1] if len(looks) == 2 else layer.norm2
    return [
        *((g.feed_forward(more, config), more.norm) for more in layer.before),
        *zip(looks, norms, strict=False),
        (g.feed_forward(layer, config), last),
        *((g.feed_forward(more, config), more.norm) for more in layer.after),
    ]


@dataclass(frozen=True)
class _State:
    """What was read, (N, H, S, D) each with its mask, and what was said, (N, H, T, D) each."""

    memory: dict[str, Array]
    past: dict[str, Array]

    def select(self, rows: Array) -> _State:
        """Return the state of these hypotheses, in this order."""
        return _State(
            {name: array[rows] for name, array in self.memory.items()},
            {name: array[rows] for name, array in self.past.items()},
        )


class OnnxModel:
    """What `write_onnx` wrote, run by onnxruntime; `decoding.search` takes it like a model.

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
        """Say one token to every hypothesis; return (log p of the next (B, V), state)."""
        names = [value.name for value in self._decoder.get_outputs()]
        ids = np.asarray(tokens, np.int64)[:, None]
        log_p, *present = self._decoder.run(names, {"input_ids": ids, **state.memory, **state.past})
        past = {
            name.replace("present", "past"): array
            for name, array in zip(names[1:], present, strict=True)
        }
        return log_p, _State(state.memory, past)
