"""Byte-level pieces, by Hugging Face's library: byte-pair encoding, which can write any text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers, trainers

from pellucid.data.tokenizers import SPECIALS, Tokenizer, checked_text, spelled_by
from pellucid.models.prefix import Spelled


class Pieces(Tokenizer):
    """A tokenizer of the library's; see `Tokenizer`."""

    def __init__(self, file: dict[str, Any], kind: str = "bpe") -> None:
        self._core = tokenizers.Tokenizer.from_str(json.dumps(file))
        # "<pad>" typed by a user is five characters, not the token of that name.
        self._core.encode_special_tokens = True
        super().__init__(file, kind)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end; see `Tokenizer.encode`."""
        # By itself: a batch of one waits for another thread.
        ids: list[int] = self._encoding(text).ids
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts: `encode`, on all cores."""
        try:
            encodings = self._core.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            for text in texts:
                checked_text(text)
            raise
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token; see `Tokenizer.spans`."""
        encoding = self._encoding(text)
        return [(i, *span) for i, span in zip(encoding.ids, encoding.offsets, strict=True)]

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Return nothing: bytes always have a token."""
        return {}

    def _encoding(self, text: str) -> Any:
        try:
            return self._core.encode(text, add_special_tokens=False)
        except TypeError:
            checked_text(text)
            raise

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token; see `Tokenizer.spelled`."""
        return spelled_by(self._core, range(len(SPECIALS)))

    def _vocab(self) -> dict[str, int]:
        found: dict[str, int] = self._core.get_vocab(with_added_tokens=True)
        return found

    def _normal(self, text: str) -> str:
        normalizer = self._core.normalizer
        return normalizer.normalize_str(checked_text(text)) if normalizer else checked_text(text)

    def _joined(self, ids: Sequence[int]) -> str:
        text: str = self._core.decode(list(ids), skip_special_tokens=True)
        return text


def learn(file: dict[str, Any], texts: Iterable[str], vocab_size: int) -> Pieces:
    """Learn the pieces of texts that are normalised already; `file` is a tokenizer without any."""
    core = tokenizers.Tokenizer.from_str(json.dumps(file | {"normalizer": None}))
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab_size, 10**7),  # the library reserves it at once
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return Pieces(json.loads(core.to_str()) | {"normalizer": file["normalizer"]})
