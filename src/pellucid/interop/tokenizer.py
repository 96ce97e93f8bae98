"""Tokenizers of other programs: tokenizer.json, older files, SentencePiece."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pellucid.core.errors import UserError, optional, pip_install, raised_as
from pellucid.data.tokenizers import TokenizerLike, library, read_json_text, spelled_by
from pellucid.models.prefix import Spelled, Spelling

SPECIAL = ("<pad>", "</s>", "<s>", "<unk>")
"""Special tokens of Marian models."""


class ForeignTokenizer(TokenizerLike):
    """Tokenizer of Hugging Face's library; texts are neither truncated nor padded.

    Special tokens in a text, such as [MASK], become those tokens. framed: encode a text with the
    begin and end tokens that the file defines, as for an encoder-decoder's source. begins: whether
    texts that are read alone get a begin token; None: as the file says.
    """

    def __init__(self, core: Any, framed: bool = False, begins: bool | None = None) -> None:
        core.no_truncation()
        core.no_padding()
        self._core, self._framed = core, framed
        around = core.encode("x").ids, core.encode("x", add_special_tokens=False).ids
        self.begin: int | None = next(iter(around[0])) if around[0][:1] != around[1][:1] else None
        """The token that the file puts in front of a text, or None."""
        self.begins = self.begin is not None if begins is None else begins

    @cached_property
    def vocab_size(self) -> int:  # type: ignore[override]
        """The largest id plus one; there may be fewer tokens."""
        return 1 + max(self._core.get_vocab(with_added_tokens=True).values(), default=-1)

    @staticmethod
    def load(path: Path, begins: bool | None = None) -> ForeignTokenizer:
        """Read a tokenizer.json. Raises `UserError` naming it if it is missing or damaged.

        begins: whether texts that are read alone get a begin token; None: as the file says.
        """
        text, read = read_json_text(path), library().Tokenizer.from_str
        # The library raises bare Exception for every fault in the file.
        with raised_as(UserError, Exception, where=f"{path}: is damaged, copy it again"):
            return ForeignTokenizer(read(text), begins=begins)

    @staticmethod
    def of_vocabulary(folder: Path, settings: Mapping[str, Any]) -> ForeignTokenizer | None:
        """Read the vocabulary files that preceded tokenizer.json; None if there are none.

        vocab.txt is BERT's WordPiece; vocab.json with merges.txt is the byte-level BPE of GPT-2,
        RoBERTa and BART. settings: those of tokenizer_config.json. Raises `UserError` naming a
        damaged file.
        """
        words, pieces, merges = (folder / x for x in ("vocab.txt", "vocab.json", "merges.txt"))
        if not (words.is_file() or (pieces.is_file() and merges.is_file())):
            return None
        of = library()
        # The library raises bare Exception.
        with raised_as(UserError, Exception, where=f"{folder}: the vocabulary is damaged"):
            if words.is_file():
                core = of.Tokenizer(of.models.WordPiece.from_file(str(words)))
                core.normalizer = of.normalizers.BertNormalizer(
                    lowercase=settings.get("do_lower_case", True),
                    strip_accents=settings.get("strip_accents"),
                    handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
                )
                core.pre_tokenizer = of.pre_tokenizers.BertPreTokenizer()
                core.decoder = of.decoders.WordPiece()
                begin, end, *others = "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"
            else:
                core = of.Tokenizer(of.models.BPE.from_file(str(pieces), str(merges)))
                before = settings.get("add_prefix_space", False)
                core.pre_tokenizer = of.pre_tokenizers.ByteLevel(add_prefix_space=before)
                core.decoder = of.decoders.ByteLevel()
                begin, end, *others = "<s>", "</s>", "<pad>", "<unk>", "<mask>", "<|endoftext|>"
        known = [x for x in (begin, end, *others) if core.token_to_id(x) is not None]
        core.add_special_tokens(
            [of.AddedToken(x, lstrip=x == "<mask>", special=True) for x in known]
        )
        if known[:2] == [begin, end]:
            ids = [(x, core.token_to_id(x)) for x in (begin, end)]
            core.post_processor = of.processors.TemplateProcessing(f"{begin} $A {end}", None, ids)
        return ForeignTokenizer(core)

    def framed(self) -> ForeignTokenizer:
        """Return a tokenizer that also encodes the begin and end tokens that the file defines."""
        return ForeignTokenizer(self._core, framed=True, begins=self.begins)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize many texts. Raises `UserError` for text that is not Unicode."""
        try:
            encodings = self._core.encode_batch_fast(texts, add_special_tokens=self._framed)
        except TypeError:
            raise UserError("not Unicode text: half of a surrogate pair") from None
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; special tokens are left out."""
        text: str = self._core.decode(list(ids), skip_special_tokens=True)
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token by itself, special tokens included."""
        return [self._core.decode([i], skip_special_tokens=False) for i in ids]

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token at the beginning of a text, and elsewhere."""
        return spelled_by(self._core)

    def to_json(self) -> str:
        """Return the text of a tokenizer.json."""
        return str(self._core.to_str())

    def units(self, text: str) -> list[str]:
        """Return the part of a text that each of its tokens covers."""
        return [text[start:end] for _, start, end in self._spans(text)]

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the parts of texts that became the unknown token."""
        if self._unknown is None:
            return {}
        spans = ((text, *span) for text in texts for span in self._spans(text))
        return Counter(text[start:end] for text, i, start, end in spans if i == self._unknown)

    @cached_property
    def _unknown(self) -> int | None:
        """Id of the unknown token, if there is one."""
        model = json.loads(self.to_json())["model"]
        token = model.get("unk_token")
        found: int | None = model.get("unk_id") if token is None else self.token_id(token)
        return found

    def _spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token."""
        encoding = self._core.encode(text, add_special_tokens=False)
        return [(i, *span) for i, span in zip(encoding.ids, encoding.offsets, strict=True)]

    def token_id(self, written: str) -> int | None:
        """Return the id of a token, or None."""
        found: int | None = self._core.token_to_id(written)
        return found


class SentencePieceTokenizer(TokenizerLike):
    """Tokenizer of one side of a Marian model: a SentencePiece model and a vocabulary.

    end: the end token to put after every text, as an encoder's input needs it; None for a target.
    Raises `UserError` if sentencepiece is not installed or the model is damaged.
    """

    begins = False

    def __init__(self, model: Path, vocabulary: dict[str, int], end: int | None) -> None:
        library = optional(
            "sentencepiece",
            f"{model.name} needs the package sentencepiece: {pip_install('sentencepiece')}",
        )
        wrong = f"{model}: is damaged, copy it again"
        with raised_as(UserError, OSError, RuntimeError, where=wrong):
            self._core = library.SentencePieceProcessor(model_file=str(model))
        self._ids, self._end = vocabulary, end
        self._written = {i: piece for piece, i in vocabulary.items()}
        self._unknown = vocabulary.get("<unk>", 0)
        self.vocab_size = 1 + max(vocabulary.values(), default=-1)

    def encode(self, text: str) -> list[int]:
        """Tokenize a text, with the end token if this side has one.

        A text may begin with the language of its answer, as in ">>fr<< Hello", if the vocabulary
        has that language.
        """
        ids = [self._ids.get(piece, self._unknown) for piece in self._pieces(text)]
        return ids if self._end is None else [*ids, self._end]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; special tokens are left out."""
        pieces = [piece for piece in self.tokens(ids) if piece not in SPECIAL]
        text: str = self._core.decode(pieces)
        return text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id as SentencePiece writes it."""
        return [self._written.get(i, "<unk>") for i in ids]

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token at the beginning of a text, and elsewhere."""
        pieces = (self._written.get(i, "<unk>") for i in range(self.vocab_size))
        every = [b"" if one in SPECIAL else one.replace("▁", " ").encode() for one in pieces]
        return Spelling(one.removeprefix(b" ") for one in every), Spelling(every)

    def _pieces(self, text: str) -> list[str]:
        """Split a text into SentencePiece's pieces; a language code in front is one piece."""
        language = re.match(r">>.+?<<", text)
        codes = [language[0]] if language and language[0] in self._ids else []
        rest: list[str] = self._core.encode(text[len("".join(codes)) :], out_type=str)
        return codes + rest

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the characters of the pieces of texts that the vocabulary does not have."""
        pieces = (piece for text in texts for piece in self._pieces(text))
        return Counter("".join(piece for piece in pieces if piece not in self._ids))


class MissingTokenizer(TokenizerLike):
    """Placeholder for a folder without tokenizer: token ids can be used, texts cannot.

    The methods that encode or decode raise `UserError`.
    """

    vocab_size, begins = 0, False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _refuse(self, *args: Any, **named: Any) -> Any:
        raise UserError(
            f"{self._folder}: has no tokenizer.json, so texts cannot be read; put it there, or "
            "give the model token ids"
        )

    encode = encode_all = decode = tokens = normalised = _refuse
