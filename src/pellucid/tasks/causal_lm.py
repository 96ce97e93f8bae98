"""The decoder alone: it continues a text, and learns from texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.core.array import to_host
from pellucid.core.batch import Packed
from pellucid.generation import Decodes
from pellucid.models.causal_lm import CausalLM
from pellucid.models.config import CausalLMConfig
from pellucid.nn import Recorder
from pellucid.tasks.generation import GenerationTask, TokenScores

Array = np.ndarray


@dataclass(frozen=True)
class _Prompted:
    """A state, and the tokens that are fed next in any case: each text's last."""

    state: Any
    last: Array | None

    def select(self, rows: Array) -> _Prompted:
        """Return the state of these hypotheses, in this order."""
        return _Prompted(self.state.select(rows), None if self.last is None else self.last[rows])

    def join(self, other: _Prompted) -> _Prompted:
        """Return the state of these hypotheses and then the other's, after a step of each."""
        assert self.last is None
        assert other.last is None
        return _Prompted(self.state.join(other.state), None)


class PromptDecoder:
    """A `CausalLM`, compiled, as search sees a model: it reads prompts, then continues them.

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

    def start(self, source: Packed) -> _Prompted:
        """Return the state after all but the last token of each text; none may be empty."""
        prompt, last = self.without_last(source)
        return _Prompted(self.model.start(prompt), last)

    def without_last(self, source: Packed) -> tuple[Packed, Array]:
        """Return all but the last token of each text, and those last tokens, which are fed next."""
        return source.without_last(), source.tokens[source.cu_seqlens[1:] - 1]

    def step(self, prompted: _Prompted, tokens: Array) -> tuple[Array, _Prompted]:
        """Return (log-probabilities of the next token (B, V), the state after it)."""
        fed = tokens if prompted.last is None else prompted.last
        log_p, state = self.model.step(prompted.state, fed)
        return log_p, _Prompted(state, None)


@dataclass(frozen=True)
class CausalLMTask(GenerationTask):
    """A `CausalLM` in eval mode with its tokenizer, which is `source` and `target`, and search.

    Its answer to a text is that text, continued.
    """

    name = "pellucid-causal-lm"
    about = "A Transformer's decoder alone: it continues a text."
    kind = "continue"
    data = "texts"
    config_class = CausalLMConfig
    model_class = CausalLM
    vocabularies = ("vocab_size",)

    model: CausalLM

    @property
    def begins(self) -> bool:
        """Whether a text is read behind a begin token: without one its first is not predicted."""
        return self.source.begins

    @property
    def max_source_length(self) -> int:
        """The most tokens a text may have, so that one more can follow."""
        return self.model.config.max_position_embeddings - 1 - self.begins

    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens that a text can be continued by."""
        return self.model.config.max_position_embeddings - len(self.prompt_ids(source))

    def score(self, source: Sequence[int], answer: Sequence[int]) -> TokenScores:
        """Teacher-force a continuation; return its log-probabilities and attention.

        `weights` are those of the last layer, mean of heads, on the text's own tokens.
        """
        prompt, recorder = self.prompt_ids(source), Recorder()
        text = Packed.of([[*prompt, *answer]])
        rows, _ = self.model.rows(text, recorder=recorder, inference=True)
        asked = slice(len(prompt) - 1, None)
        log_p, _ = ops.log_softmax(to_host(self.model.output(rows[asked])))
        weights = np.zeros((len(answer) + 1, len(source)), log_p.dtype)
        if recorder.maps:
            seen = to_host(list(recorder.maps.values())[-1].weights)[0].mean(axis=0)
            weights = seen[asked, len(prompt) - len(source) : len(prompt)]
        eos = self.model.config.eos_token_id
        return TokenScores(log_p[np.arange(len(answer) + 1), [*answer, eos]], weights)

    def decoder(self) -> PromptDecoder:
        """Return what search and sampling decode with, compiled once for many texts."""
        return PromptDecoder(super().decoder())

    def prompt_ids(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that are read of a text."""
        return [self.model.config.bos_token_id, *source] if self.begins else list(source)

    def decode(self, source: Sequence[int], generated: Sequence[int]) -> str:
        """Return the text and what follows it."""
        return self.target.decode([*source, *generated])
