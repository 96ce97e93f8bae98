"""Graphs that `write_onnx` wrote, run by onnxruntime with Pellucid's search."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.core.batch import Packed
from pellucid.interop.onnx import CONFIG, DECODER, ENCODER
from pellucid.interop.onnx_graph import package
from pellucid.models.config import CausalLMConfig, Seq2SeqConfig
from pellucid.models.model import choices

Array = np.ndarray


@dataclass(frozen=True)
class _State:
    """State of decoding: keys, values (N, G, S, D) and mask of a source, or the mask of a text,
    and the keys and values so far (N, G, T, D)."""

    memory: dict[str, Array]
    past: dict[str, Array]

    def select(self, rows: Array) -> _State:
        """Return the state of these hypotheses, in this order."""
        return _State(
            {name: array[rows] for name, array in self.memory.items()},
            {name: array[rows] for name, array in self.past.items()},
        )


class OnnxModel:
    """A written model that generates; `generation.search` takes it like a model."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        runtime = package("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads

        def opened(name: str) -> Any:
            path, providers = str(folder / name), ["CPUExecutionProvider"]
            return runtime.InferenceSession(path, options, providers=providers)

        values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        self._alone = values.pop("model_type") == CausalLMConfig.model_type
        self.config = (CausalLMConfig if self._alone else Seq2SeqConfig)(**values)
        self._encoder = None if self._alone else opened(ENCODER)
        self._decoder = opened(DECODER)
        self._names = [value.name for value in self._decoder.get_outputs()]

    def room(self, source: Packed) -> Array:
        """Return the most tokens that the answer to each of these can have: (N,)."""
        longest = self.config.max_position_embeddings - 1
        return longest - (source.lengths if self._alone else np.zeros_like(source.lengths))

    def start(self, source: Packed) -> _State:
        """Return the state before the first token, one hypothesis per source."""
        past = {
            value.name: np.zeros((len(source), value.shape[1], 0, value.shape[3]), np.float32)
            for value in self._decoder.get_inputs()
            if value.name.startswith("past.")
        }
        ids = source.padded(self.config.pad_token_id)
        mask = (np.arange(ids.shape[1]) < source.lengths[:, None]).astype(np.int64)
        if self._encoder is None:
            state = _State({"attention_mask": mask[:, :0]}, past)
            return self._fed(state, ids, mask)[1] if ids.size else state
        names = [value.name for value in self._encoder.get_outputs()]
        made = self._encoder.run(names, {"input_ids": ids, "attention_mask": mask})
        return _State(dict(zip(("attention_mask", *names), (mask, *made), strict=True)), past)

    def step(self, state: _State, tokens: Array) -> tuple[Array, _State]:
        """Feed one token to every hypothesis; return (log p of the next (B, V), state)."""
        ids = np.asarray(tokens, np.int64)[:, None]
        log_p, state = self._fed(state, ids, np.ones_like(ids))
        return choices(log_p.reshape(len(ids), -1), self.config), state

    def _fed(self, state: _State, ids: Array, mask: Array) -> tuple[Array, _State]:
        """Feed tokens (B, L); the mask is True where there is a token."""
        memory = state.memory
        if self._encoder is None:
            memory = {"attention_mask": np.concatenate([memory["attention_mask"], mask], axis=1)}
        log_p, *present = self._decoder.run(self._names, {"input_ids": ids, **memory, **state.past})
        past = {
            name.replace("present", "past"): array
            for name, array in zip(self._names[1:], present, strict=True)
        }
        return log_p, _State(memory, past)
