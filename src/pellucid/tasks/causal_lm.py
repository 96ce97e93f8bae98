"""Task of a decoder alone: it continues a text, and is trained on texts."""

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
    """Return the prompts without their last tokens, and the last tokens, (N,).

    prompts: the tokens of N texts; none may be empty.
    """
    return prompts.without_last(), prompts.tokens[prompts.cu_seqlens[1:] - 1]


@dataclass(frozen=True, repr=False)
class CausalLMTask(GenerationTask):
    """A `CausalLM` with its tokenizer and search settings.

    The tokenizer is both `source` and `target`. The answer to a text is the text and its
    continuation.
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
        """Whether a begin token is put before each text.

        Without one, the first token of a text is not predicted.
        """
        return self.source.begins

    @property
    def max_source_length(self) -> int:
        """The most tokens that a text may have, so that at least one more can follow."""
        return super().max_source_length - 1 - self.begins

    def max_new_tokens(self, source: Sequence[int]) -> int:
        """Return the most tokens that can follow a text."""
        return self.model.config.max_position_embeddings - len(self.prompt_ids(source))

    def check_length(self, text: str) -> None:
        """Raise `UserError` for a text that leaves no room for the prefix or for one more token."""
        super().check_length(text)
        room = self.max_new_tokens(ids := self.source.encode(text))
        if self.beginning and (count := self.beginning.fewest[0]) > room:
            raise UserError(
                f"{len(ids)} {plural(len(ids), 'token')} and room for {room} more; the prefix has "
                f"{count}"
            )

    def opening(self, text: str) -> Opening:
        """Split a text into tokens to read, and bytes that the answer must begin with.

        The text may end inside a token that would be natural, such as "wor" in "world". So the last
        tokens are not read if a longer token could have been used with the text that follows. The
        answer must then begin with their bytes, in any tokens.
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
        """Return all but the last token of each text, packed, and the last tokens, (N,).

        The last tokens are fed when generation begins. rows, numbers: as in the base class.
        """
        return without_last(Packed.of([self.prompt_ids(row) for row in rows], numbers))

    def prompt_ids(self, source: Sequence[int]) -> list[int]:
        """Return the token ids that the model reads for a text, with a begin token if `begins`."""
        return [self.model.config.bos_token_id, *source] if self.begins else list(source)

    def decode(self, source: Sequence[int], generated: Sequence[int]) -> str:
        """Decode a text together with the tokens generated after it."""
        return self.target.decode([*source, *generated])
