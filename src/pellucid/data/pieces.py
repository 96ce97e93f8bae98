"""Byte-level BPE with Hugging Face's tokenizers library; it can tokenize any text."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers, trainers

from pellucid.data.tokenizers import SPECIALS, Tokenizer, aligned, spelled_by
from pellucid.models.prefix import Spelled


class Pieces(Tokenizer):
    """A `Tokenizer` of kind "bpe", computed by Hugging Face's package tokenizers."""

    def __init__(self, file: dict[str, Any], kind: str = "bpe") -> None:
        theirs = {name: value for name, value in file.items() if name != "reading"}
        self._core = tokenizers.Tokenizer.from_str(json.dumps(theirs))
        # "<pad>" typed by a user is five characters, not the token of that name.
        self._core.encode_special_tokens = True
        super().__init__(file, kind)

    def encode(self, text: str) -> list[int]:
        """Tokenize a text without begin and end; see `Tokenizer.encode`."""
        # By itself: a batch of one waits for another thread.
        ids: list[int] = self._encoding(text).ids
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize many texts as `encode` does, in the library's threads."""
        read = [self._read(text) for text in texts]
        encodings = self._core.encode_batch_fast(read, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token; see `Tokenizer.spans`."""
        encoding = self._encoding(text)
        parts = aligned(self._read, [(c, i, i + 1) for i, c in enumerate(text)])
        return [
            (i, parts[start][1], parts[end - 1][2])
            for i, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Return an empty dict: bytes can represent every text."""
        return {}

    def _encoding(self, text: str) -> Any:
        return self._core.encode(self._read(text), add_special_tokens=False)

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token; see `Tokenizer.spelled`."""
        return spelled_by(self._core, range(len(SPECIALS)))

    def _vocab(self) -> dict[str, int]:
        found: dict[str, int] = self._core.get_vocab(with_added_tokens=True)
        return found

    def _normal(self, text: str) -> str:
        normalizer = self._core.normalizer
        text = self._read(text)
        return normalizer.normalize_str(text) if normalizer else text

    def _joined(self, ids: Sequence[int]) -> str:
        text: str = self._core.decode(list(ids), skip_special_tokens=True)
        return text


def learn(file: dict[str, Any], texts: Iterable[str], vocab_size: int) -> Pieces:
    """Learn BPE merges from normalised texts; return the tokenizer.

    file: a parsed tokenizer.json without merges. vocab_size: the most tokens.
    """
    core = Pieces(file | {"normalizer": None})._core
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab_size, 10**7),  # the library reserves it at once
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    kept = {name: file[name] for name in ("normalizer", "reading") if name in file}
    return Pieces(json.loads(core.to_str()) | kept)
