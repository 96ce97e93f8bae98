"""The decoder alone: it continues a text, and learns from texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from pellucid.core.batch import Packed
from pellucid.core.errors import UserError
from pellucid.models.causal_lm import CausalLM
from pellucid.models.config import CausalLMConfig
from pellucid.models.prefix import NEVER, Prefix
from pellucid.system.language import plural
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

    def check_length(self, text: str) -> None:
        """Raise `UserError` for a text that leaves no room for more, or for the prefix."""
        super().check_length(text)
        room = self.max_new_tokens(ids := self.source.encode(text))
        if self.beginning and (count := self.beginning.fewest[0]) > room:
            raise UserError(
                f"{len(ids)} {plural(len(ids), 'token')} and room for {room} more; the prefix has "
                f"{count}"
            )

    def opening(self, text: str) -> Opening:
        """Return what is read of a text, and what its answer begins with.

        A token may reach beyond the end of a text, as "world" does beyond "wor". So what one token
        could write together with something that follows is not read: the answer writes its bytes
        again, in any tokens.
        """
        row, spelled = self.source.encode(text), self.target.spelled
        whole, closed_to = self.target.beginning(text + self.prefix)
        end = len(self.target.beginning(text)[0] if self.prefix else whole)
        first = max(0, end - max(map(attrgetter("longest"), spelled)) + 1)
        reaching = (p for p in range(first, end) if spelled[p > 0].reaches(whole[p:], end - p))
        cut = min(next(reaching, end), end - bool(closed_to))
        kept, at, before = list(row), end, self.decode(row, ())

        def last() -> bytes:
            return spelled[len(kept) > 1][kept[-1]]

        if kept and not whole[:end].endswith(last()):  # white space at the end has no token
            at = len(whole[:end].rstrip())
            before += whole[at:end].decode()
        while at > cut and len(kept) > (not self.begins) and last():
            if not whole[:at].endswith(last()):
                break
            at -= len(last())
            kept.pop()
        if not (rest := whole[at:]):
            return Opening(row, None, before)
        behind = (spelled[bool(kept)], spelled[1])
        again = len(row) - len(kept)
        beginning = Prefix.of_text(rest, behind, self.never, (), closed_to, again)
        if beginning.fewest[0] >= NEVER:
            return Opening(row, self.beginning, self.decode(row, ()))
        return Opening(kept, beginning, before, end - at)

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
