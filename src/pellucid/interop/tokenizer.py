"""A tokenizer.json of another program: text to ids and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers

from pellucid.core.errors import UserError
from pellucid.core.files import MOST_BYTES, read_file


class ForeignTokenizer:
    """Tokenize text as the file says; nothing is truncated and nothing is padded.

    Special tokens written in a text, such as [MASK], become those tokens.
    """

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        core.no_truncation()
        core.no_padding()
        self._core = core
        self.vocab_size: int = core.get_vocab_size(with_added_tokens=True)

    @staticmethod
    def load(path: Path) -> ForeignTokenizer:
        """Read a tokenizer.json. Raises `UserError` naming it when it is missing or damaged."""
        try:
            text = read_file(path, MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}: is damaged (not UTF-8); copy it again") from None
        try:
            return ForeignTokenizer(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # the library raises bare Exception for every fault in the file
            raise UserError(f"{path}: is damaged ({error}); copy it again") from None

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts. Raises `UserError` for what is not Unicode text."""
        try:
            encodings = self._core.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            raise UserError("not Unicode text: half of a surrogate pair") from None
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens leave no trace."""
        return self._core.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by itself, special tokens as they are written."""
        return [self._core.decode([i], skip_special_tokens=False) for i in ids]

    def token_id(self, written: str) -> int:
        """Return the id of a token. Raises `UserError` when there is none."""
        found = self._core.token_to_id(written)
        if found is None:
            raise UserError(f"the tokenizer has no token {written}")
        return int(found)

    def unknown_characters(self, texts: Iterable[str]) -> dict[str, int]:
        """Return nothing: such a file does not say which characters have no token."""
        return {}


class MissingTokenizer:
    """In place of a tokenizer.json that a folder lacks: token ids can be read, texts cannot."""

    vocab_size = 0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def encode(self, text: str) -> list[int]:
        """Raise `UserError`."""
        raise self._fault()

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Raise `UserError`."""
        raise self._fault()

    def decode(self, ids: Sequence[int]) -> str:
        """Raise `UserError`."""
        raise self._fault()

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Raise `UserError`."""
        raise self._fault()

    def unknown_characters(self, texts: Iterable[str]) -> dict[str, int]:
        """Return nothing."""
        return {}

    def _fault(self) -> UserError:
        return UserError(
            f"{self._folder}: has no tokenizer.json, so texts cannot be read; put it there, or "
            "give the model token ids"
        )
