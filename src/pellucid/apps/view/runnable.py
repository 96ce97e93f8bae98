"""Describe a model for the page's own forward pass: parts, weights and tokenizers.

That forward pass (viewer/src/run) runs whatever this describes. A model with a part that it cannot
compute is refused here with an error that names the part, so that it never shows a wrong answer.
"""

import base64
import json
import re
import sys
import unicodedata
from dataclasses import asdict
from typing import Any

import numpy as np

from pellucid import nn, ops
from pellucid.apps.view.record import Array, rule_parts
from pellucid.apps.view.tokens import specials_of
from pellucid.data.tokenizers import SPECIALS, UNK, library
from pellucid.interop.tokenizer import ForeignTokenizer
from pellucid.models import walk
from pellucid.models.embed import Embed
from pellucid.models.quantize import int8_rows
from pellucid.models.stack import ModelStack, Step
from pellucid.nn.attention import Attention
from pellucid.nn.layers import Norm
from pellucid.nn.module import Parameter
from pellucid.tasks import ClassifierTask, MaskedLMTask, Seq2SeqTask, Task
from pellucid.tasks.masked_lm import MASK
from pellucid.tasks.passage import patterns

FORMAT = 1
LARGEST = 4_000_000
"""The most parameters of a model in a page: in base64 each takes about 1.3 bytes."""
NEAR = 1e-4
"""Tolerance when weights are recognised as int8 numbers times a scale, relative to the scale."""
TOKENIZERS = ("char", "word", "bpe", "label")
"""The kinds of Pellucid's tokenizers that the page implements; of labels the last."""
PARTS = ("normalizer", "pre_tokenizer", "model", "decoder")
BERTS = ["BertNormalizer", "BertPreTokenizer", "WordPiece", "WordPiece"]
"""The parts of a tokenizer.json of BERT's, whose tokenizer the page implements too."""
READER = walk.Reader(
    "the page's own forward pass",
    walk.MODULES,
    {
        **walk.EVERY_ATTENTION,
        "rotate": (None, ops.rotary),
        "rotate_cross": None,
        "kind": ("layer_norm", "rms_norm"),
        "activation": (
            "relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh",
        ),
    },
)  # fmt: skip
"""Checks that the page's forward pass can compute all parts of a model."""


def runnable(task: Any, text: str = "") -> dict[str, Any]:
    """Describe the model of a task, so that the page can run it.

    text: the text that the page shows first. A matrix whose rows are int8 numbers times a scale, as
    `models.quantize` stores them, is written so; all other arrays as float32. Raises
    `UnsupportedError` naming a part that the page cannot compute, for a model of more than
    `LARGEST` parameters, and for one without tokenizers.
    """
    if not isinstance(task, Task):
        raise walk.UnsupportedError(
            f"the page runs models with their tokenizers, not {type(task).__name__}"
        )
    stacks = READER.read(task.model)
    if (size := sum(p.data.size for p in task.model.parameters())) > LARGEST:
        raise walk.UnsupportedError(
            f"the model has {size:,} parameters, and a page takes at most {LARGEST:,}"
        )
    numbers, config = _Numbers(task.model), task.model.config
    return {
        "format": FORMAT,
        "text": text,
        "begin": config.bos_token_id,
        "end": config.eos_token_id,
        "unknown": UNK,
        "suppressed": config.suppress_tokens,
        **_reading(task, numbers),
        "tokenizers": {
            side: _tokenizer(getattr(task, side), side, config) for side in ("source", "target")
        },
        "stacks": {name: _stack(stack, numbers) for name, stack in stacks.items()},
        "output": _linear(task.model.output, numbers),
        "numbers": numbers.packed(),
    }


class _Numbers:
    """The arrays of a model, each written once, in two buffers: int8 and float32."""

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no id is used again
        self._tensors: list[dict[str, Any]] = []
        self._ints, self._floats = bytearray(), bytearray()

    def place(self, x: Parameter | Array | None) -> int | None:
        """Write an array unless it is written already.

        Return its number, or None for None.
        """
        if x is None:
            return None
        if id(x) not in self._places:
            self._places[id(x)] = len(self._tensors)
            self._kept.append(x)
            values = np.asarray(walk.array(x) if isinstance(x, Parameter) else x, np.float32)
            name = self._names.get(id(x))
            self._tensors.append({"name": name, "shape": values.shape, **self._added(values)})
        return self._places[id(x)]

    def _added(self, values: Array) -> dict[str, int]:
        """Write an array, a matrix in int8 if that is exact enough; return its place."""
        if values.ndim != 2:
            return {"floats": self._floated(values)}
        whole, scales = int8_rows(values)
        if not np.all(np.abs(whole * scales - values) <= NEAR * scales):
            return {"floats": self._floated(values)}
        at = len(self._ints)
        self._ints += whole.tobytes()
        return {"ints": at, "scales": self._floated(scales)}

    def _floated(self, values: Array) -> int:
        at = len(self._floats) // 4
        self._floats += values.astype("<f4").tobytes()
        return at

    def packed(self) -> dict[str, Any]:
        """Return the numbered arrays, and both buffers in base64."""
        return {
            "tensors": self._tensors,
            "ints": base64.b64encode(self._ints).decode("ascii"),
            "floats": base64.b64encode(self._floats).decode("ascii"),
        }


def _reading(task: Any, numbers: _Numbers) -> dict[str, Any]:
    """Describe how a text becomes what the model reads, and what is answered."""
    config, most = task.model.config, task.max_source_length
    if isinstance(task, ClassifierTask):
        never = list(range(len(SPECIALS)))
        about = {"labels": config.labels, "suppressed": never, "longest": {"source": most}}
        pooler = task.model.pooler
        return about | ({} if pooler is None else _head(pooler, "tanh", None, numbers))
    if isinstance(task, MaskedLMTask):
        if (head := task.model.head) is None:
            raise walk.UnsupportedError("the page runs models that predict tokens or labels")
        whole = {"source": config.max_position_embeddings}  # with its begin and end
        made = _head(head.dense, head.activation, head.norm, numbers)
        return {"mask": config.mask_id, "longest": whole} | made
    longest = min(task.search.max_length, task.max_new_tokens([]))
    found: dict[str, Any] = {"longest": {"source": most, "answer": longest}}
    if isinstance(task, Seq2SeqTask):
        about = {"sentences": task.sentences, "words": task.reads_words, "columns": task.columns}
        return found | {"passage": about | patterns()}
    if task.prefix or getattr(task.source, "composes", True):
        raise walk.UnsupportedError(
            "the page continues texts without a prefix, by Pellucid's tokens without composing"
        )
    return found | {
        "prompt": task.prompt_ids([]),
        "positions": config.max_position_embeddings,
    }


def _tokenizer(tokenizer: Any, side: str, config: Any) -> dict[str, Any]:
    known = TOKENIZERS if side == "target" else TOKENIZERS[:-1]
    kind = getattr(tokenizer, "kind", type(tokenizer).__name__)
    file = json.loads(tokenizer.to_json()) if hasattr(tokenizer, "to_json") else {}
    parts = [(file.get(part) or {}).get("type") for part in PARTS]
    joins = any(token["normalized"] for token in file.get("added_tokens", ()))
    if isinstance(tokenizer, ForeignTokenizer) and parts == BERTS and not joins:
        return {"kind": "pieces", "pieces": _pieces(tokenizer, file, config)}
    if kind not in known or "WordPiece" in parts[:3]:
        raise walk.UnsupportedError(
            f"the page tokenizes by {', '.join(known)} or as BERT; the {side} tokenizer is {kind}"
        )
    reading = tokenizer.reading
    return {
        "kind": kind,
        "vocabulary": tokenizer.vocabulary,
        "reading": reading and {**asdict(reading), "unseen": reading.unseen},
        "normalise": list(tokenizer.normalisers),
        "composes": tokenizer.composes,
        "merges": file["model"].get("merges", []),
    }


def _pieces(tokenizer: ForeignTokenizer, file: dict[str, Any], config: Any) -> dict[str, Any]:
    """Describe BERT's tokenizer; which characters it drops and divides at is found by trying."""
    of, every = library(), map(chr, range(sys.maxunicode + 1))
    some = [c for c in every if re.match("[MPS]|C[cf]", unicodedata.category(c))]
    clean = of.normalizers.BertNormalizer(True, False, False, False).normalize_str
    bare = of.normalizers.BertNormalizer(False, False, True, False).normalize_str
    divided = of.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    ends = tokenizer.encode("")
    return {part: file[part] for part in (*PARTS, "added_tokens")} | {
        "unseen": "".join(c for c in some if not clean(c)),
        "marks": "".join(c for c in some if not bare(c)),
        "alone": "".join(c for c in some if len(divided(f"a{c}a")) == 3),
        "specials": specials_of(config) | {getattr(config, "mask_id", -1): MASK},
        "around": [ends[:1], ends[1:]] if tokenizer.begin in ends else [[], ends],
    }


def _stack(stack: ModelStack, numbers: _Numbers) -> dict[str, Any]:
    return {
        "embed": _embed(stack.embed, numbers),
        "blocks": [_block(stack, step, numbers) for step in stack.steps],
        "norm": _norm(stack.norm, numbers),
    }


def _embed(embed: Embed, numbers: _Numbers) -> dict[str, Any]:
    config = embed.config
    return {
        "tokens": numbers.place(embed.tokens.weight),
        "factor": config.token_factor,
        "positions": None if embed.places is None else config.positions,
        "table": None if embed.positions is None else numbers.place(embed.positions.weight),
        "position_factor": config.position_factor,
        "segments": None if embed.segments is None else numbers.place(embed.segments.weight),
        "norm": _norm(embed.norm, numbers),
    }


def _block(stack: ModelStack, step: Step, numbers: _Numbers) -> dict[str, Any]:
    block = step.block
    about = {
        "layer": step.layer,
        "norm": _norm(block.norm, numbers),
        "norm_first": step.norm_first,
    }
    if isinstance(block.body, Attention):
        return about | _attention(stack, block.body, block.memory, numbers)
    return about | {
        "kind": "network",
        "first": _linear(block.body.linear1, numbers),
        "activation": block.body.activation,
        "second": _linear(block.body.linear2, numbers),
    }


def _attention(
    stack: ModelStack, attention: Attention, memory: bool, numbers: _Numbers
) -> dict[str, Any]:
    """Describe an attention layer with its weights."""
    c = attention.config
    if attention.in_proj_weight is None:
        raise walk.UnsupportedError("the page projects q, k and v by one matrix, so of one width")
    rule, distances = stack.rule(attention, memory), None
    if not memory and (found := stack.distances(attention)) is not None:
        table, reach = found
        distances = {"table": numbers.place(table.ravel()), "reach": reach}
    return {
        "kind": "attention",
        "memory": memory,
        "rule": rule_parts(rule),
        "heads": c.num_heads,
        "groups": c.groups,
        "width": c.head_width,
        "scale": walk.score_factor(c),
        "head_scale": numbers.place(attention.head_scale),
        "in": {
            "weight": numbers.place(attention.in_proj_weight),
            "bias": numbers.place(attention.in_proj_bias),
        },
        "out": _linear(attention.out_proj, numbers),
        "q_norm": _norm(attention.q_norm, numbers),
        "k_norm": _norm(attention.k_norm, numbers),
        "turns": None if c.rotate is None else c.angles.frequencies(c.head_width // 2).tolist(),
        "distances": distances,
    }


def _linear(linear: nn.Linear, numbers: _Numbers) -> dict[str, Any]:
    return {"weight": numbers.place(linear.weight), "bias": numbers.place(linear.bias)}


def _head(
    first: nn.Linear, activation: str, norm: Norm | None, numbers: _Numbers
) -> dict[str, Any]:
    made = {"first": _linear(first, numbers), "activation": activation}
    return {"head": made | {"norm": _norm(norm, numbers)}}


def _norm(norm: Norm | None, numbers: _Numbers) -> dict[str, Any] | None:
    if norm is None:
        return None
    weight, bias = numbers.place(norm.weight), numbers.place(norm.bias)
    return {"kind": norm.kind, "eps": norm.eps, "weight": weight, "bias": bias}
