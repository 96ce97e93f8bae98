"""The decoder alone: it continues a text, and learns from texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pellucid.core.array import like, namespace
from pellucid.core.batch import Packed
from pellucid.models.causal_lm import CausalLM
from pellucid.models.config import CausalLMConfig
from pellucid.tasks.generation import GenerationTask, TokenPair

Array = np.ndarray


def without_last(prompts: Packed) -> tuple[Packed, Array]:
    """Return prompts without their last tokens, and those tokens (N,); none may be empty."""
    return prompts.without_last(), prompts.tokens[prompts.cu_seqlens[1:] - 1]


@dataclass(frozen=True)
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
    reads_by = "self_attn"

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

    def _forced(self, pairs: Sequence[TokenPair]) -> tuple[Any, list[tuple[int, int]]]:
        """The attention is that on the text's own tokens."""
        prompts = [self.prompt_ids(source) for source, _ in pairs]
        both = zip(prompts, (answer for _, answer in pairs), strict=True)
        text = Packed.of([[*prompt, *answer] for prompt, answer in both])
        rows, _ = self.model.rows(text, inference=True)
        last = [len(prompt) - 1 for prompt in prompts]
        asked = np.flatnonzero(text.positions >= np.repeat(last, text.lengths))
        logits = self.model.output(namespace(rows).take(rows, like(asked, rows), axis=0))
        begins = [at + 1 - len(source) for at, (source, _) in zip(last, pairs, strict=True)]
        return logits, list(zip(last, begins, strict=True))

    def _stacks(self, source: Sequence[int], answer: Sequence[int]) -> dict[str, Sequence[int]]:
        return {"decoder": [*self.prompt_ids(source), *answer]}

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
