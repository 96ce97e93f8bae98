"""One of a model's languages: what it can hold, and how its tokens are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.core.errors import UserError
from pellucid.view.tokens import Label, labels, plain_labels

if TYPE_CHECKING:
    from pellucid.data.tokenizers import TokenizerLike

Text = str | Sequence[int]
"""A text, for a model with tokenizers, or token ids."""

LONGEST_CHARACTER = 4
"""Bytes of one character at most, so pieces that may share one."""


@dataclass(frozen=True)
class Side:
    """What a model reads or says; `name` is what messages call a text of it."""

    name: str
    tokenizer: TokenizerLike | None
    entries: int
    longest: int
    """The most tokens that a text may have."""
    specials: dict[int, str]

    @property
    def _speller(self) -> TokenizerLike | None:
        """What writes tokens; None where there is nothing that knows any, so that ids stand."""
        return self.tokenizer if self.tokenizer and self.tokenizer.vocab_size else None

    def ids(self, text: Text) -> list[int]:
        """Return the ids of a text. Raises `UserError` if the model cannot read them."""
        if isinstance(text, str):
            if self.tokenizer is None:
                raise UserError(
                    f"{self.name} is text, but a bare model knows no letters; pass token ids, or "
                    "what load_model returns"
                )
            ids = self.tokenizer.encode(text)
        else:
            ids = [int(i) for i in text]
            for i in ids:
                if not 0 <= i < self.entries:
                    raise UserError(
                        f"{self.name} holds token {i}; this model has tokens 0 to "
                        f"{self.entries - 1}"
                    )
        if len(ids) > self.longest:
            raise UserError(
                f"{self.name} has {len(ids)} tokens, more than the {self.longest} that this model "
                "can hold; shorten it"
            )
        return ids

    def labels(self, ids: Sequence[int], text: Text = ()) -> list[Label]:
        """Return a label for every id; `text` is what they were made from."""
        if self._speller is None:
            return plain_labels(ids, self.specials)
        return labels(self._speller, ids, text if isinstance(text, str) else None, self.specials)

    def last(self, ids: Sequence[int]) -> Label:
        """Return the label of the last of these ids, which those before it may complete."""
        return self.labels(ids[-LONGEST_CHARACTER - 1 :])[-1]

    def text(self, ids: Sequence[int]) -> str:
        """Return what the ids say."""
        return " ".join(map(str, ids)) if self._speller is None else self._speller.decode(ids)


def specials_of(config: Any) -> dict[int, str]:
    """Return how a model's padding, begin and end are written."""
    return {config.pad_token_id: "<pad>", config.bos_token_id: "<s>", config.eos_token_id: "</s>"}
