"""The decoder alone: it continues a text, and learns from texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.core.batch import Packed
from pellucid.models.causal_lm import CausalLM
from pellucid.models.config import CausalLMConfig
from pellucid.tasks.generation import GenerationTask, Opening

Array = np.ndarray


def without_last(prompts: Packed) -> tuple[Packed, Array]:
    """Return prompts without their last tokens, and those tokens (N,); none may be empty."""
    return prompts.without_last(), prompts.tokens[prompts.cu_seqlens[1:] - 1]


@dataclass(frozen=True, repr=False)
class CausalLMTask(GenerationTask):
    """A `CausalLM` in eval mode with its tokenizer, which is `source` and `target`, and search.

    Its answer to a text is that text, continued.
    """

    name = "pellucid-causal-lm"
    about = "A Transformer's decoder alone: it continues a text."
    kind = "continue"
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
        return super().max_source_length - 1 - self.begins

    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens that a text can be continued by."""
        return self.model.config.max_position_embeddings - len(self.prompt_ids(source))

    def opening(self, text: str) -> Opening:
        """Return what is read of a text, and what its answer begins with."""
        row = self.source.encode(text)
        return Opening(row, self.beginning, self.decode(row, ()))

    def prompts(
        self, rows: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> tuple[Packed, Array]:
        """Return all but the last token of each text, and that token, fed before its answer."""
        return without_last(Packed.of([self.prompt_ids(row) for row in rows], numbers))

    def prompt_ids(self, source: Sequence[int]) -> list[int]:
        """Return the tokens that are read of a text."""
        return [self.model.config.bos_token_id, *source] if self.begins else list(source)

    def decode(self, source: Sequence[int], generated: Sequence[int]) -> str:
        """Return the text and what follows it."""
        return self.target.decode([*source, *generated])
