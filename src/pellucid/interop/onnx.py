"""Write a model as ONNX graphs.

An encoder-decoder is two graphs:

    encoder.onnx: input_ids, attention_mask (N, S) -> memory.i.key, memory.i.value (N, G, S, D) of
        every decoder layer i
    decoder.onnx: input_ids (N, 1), attention_mask (N, S), memory.i.key, memory.i.value, past.i.key,
        past.i.value (N, G, T, D) -> log_p (N, V), present.i.key, present.i.value (N, G, T + 1, D)

A decoder alone is one, in which texts may be padded at either end:

    decoder.onnx: input_ids (N, L), attention_mask (N, T + L), past.i.key, past.i.value (N, G, T, D)
        -> log_p (N, L, V), present.i.key, present.i.value (N, G, T + L, D)

A classifier is one, with log_p (N, labels) for texts or (N, S, labels) for tokens:

    encoder.onnx: input_ids, attention_mask, token_type_ids if it has segments (N, S) -> log_p

The names of the labels are in labels.json, which `pellucid export` adds.

An encoder alone is one:

    encoder.onnx: input_ids, attention_mask, token_type_ids if it has segments (N, S) ->
        rows (N, S, E), log_p (N, S, V) of every token if it predicts tokens,
        pooled (N, E) if it has a pooler

A first step has an empty past, T = 0. attention_mask is 1 for tokens and 0 for padding; every text
has at least one token. G is the number of heads of keys and values. config.json next to the graphs
is the model's.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from pellucid import nn
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import SPECIALS
from pellucid.interop.onnx_graph import Graph, Places, package
from pellucid.models import CausalLM, MaskedLM, Seq2Seq
from pellucid.models.classifier import Classifier
from pellucid.models.positions import POSITIONS
from pellucid.models.stack import ModelStack, Step
from pellucid.models.walk import EVERY_ATTENTION, MODULES, Reader, UnsupportedError
from pellucid.nn.attention import Attention
from pellucid.nn.config import AttentionConfig
from pellucid.ops.activations import ACTIVATIONS
from pellucid.ops.norms import NORMS
from pellucid.system.files import folder_atomically

Model = Seq2Seq | CausalLM | MaskedLM | Classifier

READER = Reader(
    "ONNX export",
    MODULES,
    {
        **EVERY_ATTENTION,
        "rotate": (None, *(row.rotate for row in POSITIONS.values() if row.onnx)),
        "rotate_cross": None,
        "kind": [name for name, row in NORMS.items() if row.onnx],
        "activation": [name for name, row in ACTIVATIONS.items() if row.onnx],
    },
)
"""Checks that ONNX graphs can express all parts of a model."""

ENCODER, DECODER, CONFIG = "encoder.onnx", "decoder.onnx", "config.json"


def write_onnx(
    model: Model, folder: Path, beside: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write a model's ONNX graphs, config.json and further files: all or none.

    beside: the contents of the further files, by name.

    Raises `UserError` if onnx is not installed, if the folder already exists, or if it cannot be
    written; `UnsupportedError` for a model with a part that the graphs cannot express, and for a
    decoder without layers, which has no past.
    """
    onnx = package("onnx")
    stacks = READER.read(model)
    encoder, decoder = (stacks.get(name) for name in ("encoder", "decoder"))
    if decoder is not None and not decoder.steps:
        raise UnsupportedError("a decoder without layers cannot be written as ONNX: it has no past")
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    graphs = {}
    if encoder is not None:
        graphs[ENCODER] = _encoder(onnx, model, encoder, decoder)
    if decoder is not None:
        graphs[DECODER] = _decoder(onnx, model, decoder)
    config = json.dumps(asdict(model.config), indent=2) + "\n"
    with folder_atomically(folder) as made:
        for name, graph in graphs.items():
            onnx.save_model(graph, str(made / name))
        for name, content in {CONFIG: config.encode(), **beside}.items():
            (made / name).write_bytes(content)


def _encoder(onnx: Any, model: Model, encoder: ModelStack, decoder: ModelStack | None) -> Any:
    """Make an encoder's graph.

    Its outputs are those of `_predictions` or `_labels`, or keys and values for a decoder.
    """
    g = Graph(onnx)
    g.input("input_ids", ["N", "S"], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    segments = None
    if encoder.embed.segments is not None:
        g.input(segments := "token_type_ids", ["N", "S"], whole=True)
    counted = g.counted(g.length("input_ids", 1))
    places = Places(counted, counted, g.mask())

    def attend(_: Step, attention: Attention, x: str) -> str:
        q, k, v = _turned(g, x, places, attention)
        return g.attend(q, k, v, g.seen(attention, encoder, places), attention)

    x = g.run(g.embed(encoder, counted, segments), encoder, attend)
    if isinstance(model, MaskedLM):
        _predictions(g, model, x)
    if isinstance(model, Classifier):
        _labels(g, model, x)
    memory = [] if decoder is None else decoder.attentions(memory=True)
    for i, attention in enumerate(memory):
        k, v = g.projected(x, attention, slice(1, 3))
        for name, made in ("key", g.turned(k, attention, counted)), ("value", v):
            g("Identity", made, output=f"memory.{i}.{name}")
            g.output(f"memory.{i}.{name}", _shape(attention.config, "S"))
    return g.model("encoder")


def _predictions(g: Graph, model: MaskedLM, x: str) -> None:
    """Add the outputs of an encoder alone: rows, log_p and pooled."""
    g("Identity", x, output="rows")
    g.output("rows", ["N", "S", None])
    if model.head is not None and model.output is not None:
        y = g.norm(g.activated(x, model.head.dense, model.head.activation), model.head.norm)
        g("LogSoftmax", g.linear(y, model.output), output="log_p", axis=-1)
        g.output("log_p", ["N", "S", model.output.out_features])
    if model.pooler is not None:
        _pooled(g, x, model.pooler, output="pooled")
        g.output("pooled", ["N", model.pooler.out_features])


def _pooled(g: Graph, x: str, pooler: nn.Linear, **named: str) -> str:
    """Add BERT's pooled row of each text, tanh of a linear layer of its first row."""
    first = g("Gather", x, g.constant(0, np.int64), axis=1)
    return g("Tanh", g.linear(first, pooler), **named)


def _labels(g: Graph, model: Classifier, x: str) -> None:
    """Add the output of a classifier.

    For texts it reads BERT's pooled row, or else the mean of the tokens' rows.
    """
    dims: list[Any] = ["N", "S"] if model.config.labels == "token" else ["N"]
    if model.pooler is not None:
        x = _pooled(g, x, model.pooler)
    elif model.config.labels == "text":
        one, last = (g.constant([axis], np.int64) for axis in (1, 2))
        there = g("Unsqueeze", g("CastLike", "attention_mask", x), last)
        x = g("Div", g("ReduceSum", g("Mul", x, there), one, keepdims=0),
              g("ReduceSum", there, one, keepdims=0))  # fmt: skip
    first, last, at = (g.constant([n], np.int64) for n in (len(SPECIALS), 2**31, len(dims)))
    logits = g("Slice", g.linear(x, model.output), first, last, at)  # the others are never a label
    g("LogSoftmax", logits, output="log_p", axis=-1)
    g.output("log_p", [*dims, model.output.out_features - len(SPECIALS)])


def _decoder(onnx: Any, model: Model, decoder: ModelStack) -> Any:
    """Make the graph of a decoder.

    With an encoder it takes one token of each text per step; a decoder alone takes any number.
    """
    g, own, memory = Graph(onnx), decoder.attentions(), decoder.attentions(memory=True)
    g.input("input_ids", ["N", 1 if memory else "L"], whole=True)
    g.input("attention_mask", ["N", "S"], whole=True)
    for i, attention in enumerate(own):
        for name in ("key", "value"):
            if memory:
                g.input(f"memory.{i}.{name}", _shape(attention.config, "S"))
            g.input(f"past.{i}.{name}", _shape(attention.config, "T"))
    past = g.length("past.0.key", 2)
    if memory:
        one, shape = g.constant(1, np.int64), g.constant((1, 1), np.int64)
        places = Places(g("Reshape", past, shape), g.counted(g("Add", past, one)))
    else:
        zero, one, end = (g.constant([n], np.int64) for n in (0, 1, 2**31))
        tokens = g("CumSum", "attention_mask", g.constant(1, np.int64))
        keys = g("Max", g("Sub", tokens, one), zero)  # padding in front is at 0 too, but unseen
        places = Places(g("Slice", keys, g("Unsqueeze", past, zero), end, one), keys, g.mask())

    def attend(step: Step, attention: Attention, x: str) -> str:
        i = step.layer
        if step.block.memory:
            (q,) = g.projected(x, attention, slice(1))
            q = g.turned(q, attention, places.queries)
            return g.attend(q, f"memory.{i}.key", f"memory.{i}.value", g.mask(), attention)
        q, k, v = _turned(g, x, Places(places.queries, places.queries), attention)
        k = g("Concat", f"past.{i}.key", k, output=f"present.{i}.key", axis=2)
        v = g("Concat", f"past.{i}.value", v, output=f"present.{i}.value", axis=2)
        return g.attend(q, k, v, g.seen(attention, decoder, places), attention)

    x = g.run(g.embed(decoder, places.queries), decoder, attend)
    assert model.output is not None  # all models that generate have one
    logits = g.linear(x, model.output)
    if memory:
        logits = g("Squeeze", logits, g.constant([1], np.int64))
    g("LogSoftmax", logits, output="log_p", axis=-1)
    g.output("log_p", [*(["N"] if memory else ["N", "L"]), model.output.out_features])
    for i, attention in enumerate(own):
        for name in ("key", "value"):
            g.output(f"present.{i}.{name}", _shape(attention.config, None))
    return g.model("decoder")


def _shape(config: AttentionConfig, length: str | None) -> list[Any]:
    """Return the symbolic shape of keys or values."""
    return ["N", config.groups, length, config.head_width]


def _turned(g: Graph, x: str, places: Places, attention: Attention) -> tuple[str, str, str]:
    """Add queries, keys and values of rows, with rotary positions if there are any."""
    q, k, v = g.projected(x, attention, slice(3))
    return g.turned(q, attention, places.queries), g.turned(k, attention, places.keys), v
