"""A trained decoder alone: texts in, the same texts continued out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Packed
from pellucid.data.tokenizers import TokenizerLike
from pellucid.generation import Decodes, compile_model
from pellucid.models.causal_lm import CausalLM
from pellucid.nn import Recorder
from pellucid.pipelines.base import GenerationPipeline, Reading

Array = np.ndarray


@dataclass(frozen=True)
class _Opened:
    """A state, and the tokens that are fed next in any case: each text's last."""

    state: Any
    last: Array | None

    def select(self, rows: Array) -> _Opened:
        """Return the state of these hypotheses, in this order."""
        return _Opened(self.state.select(rows), None if self.last is None else self.last[rows])

    def join(self, other: _Opened) -> _Opened:
        """Return the state of these hypotheses and then the other's, after a step of each."""
        assert self.last is None
        assert other.last is None
        return _Opened(self.state.join(other.state), None)


class Continuing:
    """A `CausalLM`, compiled, as search sees a model: it reads texts, then says what follows.

    Search begins with a begin token; here the last token of each text replaces it.
    """

    def __init__(self, model: Decodes) -> None:
        self.model, self.config = model, model.config

    @property
    def dtype(self) -> Any:
        """The dtype of the model's parameters."""
        return self.model.dtype

    def room(self, source: Packed) -> Array:
        """Return the most tokens that each of these texts can be continued by: (N,)."""
        room: Array = self.config.max_position_embeddings - source.lengths
        return room

    def start(self, source: Packed) -> _Opened:
        """Return the state after all but the last token of each text; none may be empty."""
        read, last = self.opened(source)
        return _Opened(self.model.start(read), last)

    def opened(self, source: Packed) -> tuple[Packed, Array]:
        """Return what is read of texts, and the first token that is fed after each."""
        return source.without_last(), source.tokens[source.cu_seqlens[1:] - 1]

    def step(self, opened: _Opened, tokens: Array) -> tuple[Array, _Opened]:
        """Return (log-probabilities of the next token (B, V), the state after it)."""
        said = tokens if opened.last is None else opened.last
        log_p, state = self.model.step(opened.state, said)
        return log_p, _Opened(state, None)


@dataclass(frozen=True)
class CausalLMPipeline(GenerationPipeline):
    """A `CausalLM` in eval mode with its tokenizer, which is both `source` and `target`.

    Its answer to a text is that text, continued.
    """

    model: CausalLM
    begins: bool = True
    """Whether a text begins with the begin token, as it did in training."""

    @property
    def tokenizer(self) -> TokenizerLike:
        """The tokenizer of texts and of what follows them."""
        return self.source

    @property
    def longest(self) -> int:
        """The most tokens a text may have, so that one more can follow."""
        return self.model.config.max_position_embeddings - 1 - self.begins

    def room(self, source: Sequence[int]) -> int:
        """Return the most tokens that a text can be continued by."""
        return self.model.config.max_position_embeddings - len(self.opening(source))

    def read(self, source: Sequence[int], answer: Sequence[int]) -> Reading:
        """Teacher-force a continuation; return its log-probabilities and attention.

        `weights` are those of the last layer, mean of heads, on the text's own tokens.
        """
        opening = self.opening(source)
        text = Packed.of([[*opening, *answer]])
        with Recorder() as recorder:
            rows, _ = self.model.rows(text, inference=True)
        asked = slice(len(opening) - 1, None)
        log_p, _ = ops.log_softmax(to_host(self.model.output(rows[asked])))
        weights = np.zeros((len(answer) + 1, len(source)), log_p.dtype)
        if recorder.maps:
            seen = to_host(list(recorder.maps.values())[-1].weights)[0].mean(axis=0)
            weights = seen[asked, len(opening) - len(source) : len(opening)]
        eos = self.model.config.eos_token_id
        return Reading(log_p[np.arange(len(answer) + 1), [*answer, eos]], weights)

    def speaker(self) -> Continuing:
        """Return what search and sampling decode with, compiled once for many texts."""
        return Continuing(compile_model(self.model, self.arithmetic))

    def opening(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that are read of a text."""
        return [self.model.config.bos_token_id, *source] if self.begins else list(source)

    def written(self, source: Sequence[int], said: Sequence[int]) -> str:
        """Return the text and what follows it."""
        return self.target.decode([*source, *said])
