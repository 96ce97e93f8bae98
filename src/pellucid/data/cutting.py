"""What is asked of a tokenizer, ours or another program's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Cuts(Protocol):
    """Text to token ids and back."""

    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by itself."""

    def unknown_characters(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the characters that have no token."""
