"""From text to token ids and back, exactly: whole characters, or byte-level pieces.

Both are kept as a `tokenizer.json` in Hugging Face's format. Ids 0 to 3 always mean the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from pellucid.core.errors import UsageError, UserError
from pellucid.core.files import MOST_BYTES, read_file
from pellucid.core.settings import nearest

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
BYTES = 256

NORMALISERS: dict[str, Callable[[], list[normalizers.Normalizer]]] = {
    "nfc": lambda: [normalizers.NFC()],
    "lowercase": lambda: [normalizers.Lowercase()],
    "whitespace": lambda: [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()],
    "punctuation": lambda: [normalizers.Replace(mark, f" {mark} ") for mark in "?.!,"],
}
"""What may be done to a text before it is tokenized: compose it (Unicode's NFC), lower-case it,
make each run of white space one space with none at the edges, put a space round each ? . ! and ,
(article 003)."""

_log = logging.getLogger(__name__)


class TokenizerLike(Protocol):
    """What a pipeline needs of a tokenizer, ours or another program's."""

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


class Tokenizer:
    """Tokenizes text, and joins tokens again.

    `decode(encode(text)) == text` for every text, once it is normalised; at
    character level every character must have been seen in training.

    >>> tokenizer = train_tokenizer(["banana"], kind="char")
    >>> tokenizer.encode("nab")
    [5, 4, 6]
    >>> tokenizer.decode([5, 4, 6])
    'nab'
    """

    def __init__(self, core: tokenizers.Tokenizer, kind: str) -> None:
        # "<pad>" typed by a user is five characters, not the token of that name.
        core.encode_special_tokens = True
        self._core = core
        self.kind = kind
        self.vocab_size: int = core.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end. An unknown character has id 3 (`UNK`).

        Raises `UserError` when `text` holds half of a surrogate pair, which is no character.
        """
        try:  # by itself: a batch of one waits for another thread
            ids: list[int] = self._core.encode(text, add_special_tokens=False).ids
        except TypeError:
            raise _not_unicode([text]) from None
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts: `encode`, on all cores."""
        try:
            encodings = self._core.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            raise _not_unicode(texts) from None
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token: it is that of `text[start:end]`.

        The tokens of one character in several pieces all have that character's span. Raises
        `UserError` as `encode` does.
        """
        try:
            encoding = self._core.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_unicode([text]) from None
        return [(i, *span) for i, span in zip(encoding.ids, encoding.offsets, strict=True)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; begin, end and padding leave no trace.

        Unknown shows as <unk> at character level; bytes need none, and there it leaves no trace.
        Bytes that do not make a character, which only a model could put in a row, come out as
        U+FFFD.
        """
        return self._core.decode(list(ids), skip_special_tokens=True)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by itself, for pictures; part of a character is U+FFFD."""
        return [
            SPECIALS[i] if i < len(SPECIALS) else self._core.decode([i], skip_special_tokens=True)
            for i in ids
        ]

    def normalised(self, text: str) -> str:
        """Return a text normalised: as it comes back from encode and decode.

        Raises `UserError` as `encode` does.
        """
        return _normalised(self._core.normalizer, text)

    def unknown_characters(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the characters that have no token, most frequent first. Bytes always have one."""
        if KINDS[self.kind].any_text:
            return {}
        counts = _count_characters(self._core.normalizer, texts)
        known = self._core.get_vocab()
        return {c: n for c, n in _by_frequency(counts) if c not in known}

    @property
    def vocabulary(self) -> list[str]:
        """The tokens as the file spells them, in the order of their ids."""
        vocab = self._core.get_vocab(with_added_tokens=True)
        return sorted(vocab, key=vocab.__getitem__)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary."""
        return hashlib.sha256(json.dumps(self.vocabulary).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`; the same tokenizer always gives the same bytes."""
        return self._core.to_str(pretty=True) + "\n"

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`."""
        path.write_bytes(self.to_json().encode("utf-8"))

    @staticmethod
    def load(path: Path) -> Tokenizer:
        """Read a `tokenizer.json` that `save` wrote.

        Raises `UserError` naming the file when it is damaged, or a tokenizer of another kind.
        """
        try:
            text = read_file(path, MOST_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{path}: is damaged (not UTF-8); copy it again") from None
        return Tokenizer.of_json(text, path)

    @staticmethod
    def of_json(text: str, path: Path = Path("tokenizer.json")) -> Tokenizer:
        """Return the tokenizer of a text that `to_json` gave; errors name `path`."""
        try:
            kind = _kind_of(json.loads(text))
        except (ValueError, RecursionError):
            raise UserError(f"{path}: is damaged (not JSON); copy it again") from None
        except (LookupError, TypeError, AttributeError):
            kind = None
        if kind is None:
            raise UserError(
                f"{path}: is not a tokenizer of Pellucid's; expected characters or byte-level BPE "
                f"with {', '.join(SPECIALS)} as ids 0 to 3"
            )
        try:
            return Tokenizer(tokenizers.Tokenizer.from_str(text), kind)
        except Exception as error:  # the library raises bare Exception for every error in the file
            raise UserError(f"{path}: is damaged ({error}); copy it again") from None


def normaliser(names: Sequence[str]) -> Callable[[str], str]:
    """Return what does these steps of `NORMALISERS` to a text, in order.

    Raises `UsageError` for an unknown one.

    >>> normaliser(["lowercase", "whitespace"])(" A  B")
    'a b'
    """
    return partial(_normalised, _normalizer(names))


def train_tokenizer(
    texts: Iterable[str],
    kind: str = "bpe",
    vocab_size: int | None = None,
    normalise: Sequence[str] = (),
) -> Tokenizer:
    """Learn a tokenizer from texts; the same texts always give the same one.

    `kind` "char": one token for each code point, the most frequent first; ties in code point order.
    `kind` "bpe": byte-pair encoding on bytes (Sennrich et al. 2016; Radford et al. 2019), which can
    write any text. `vocab_size` counts the four special tokens; a corpus may be too small to fill
    it, and at character level None takes every character. `normalise` names steps of `NORMALISERS`,
    in order.

    Raises `UsageError` for an unknown normaliser and a vocabulary too small for its alphabet.
    """
    normalizer = _normalizer(normalise)
    return Tokenizer(KINDS[kind].train(texts, vocab_size, normalizer), kind)


def _normalizer(names: Sequence[str]) -> normalizers.Normalizer | None:
    for name in names:
        if name not in NORMALISERS:
            raise UsageError(
                f"no normaliser {name!r}{nearest(name, NORMALISERS)}; there are: "
                f"{', '.join(NORMALISERS)}"
            )
    steps = [step for name in names for step in NORMALISERS[name]()]
    return normalizers.Sequence(steps) if steps else None


def _normalised(normalizer: normalizers.Normalizer | None, text: str) -> str:
    if normalizer is None:
        return text
    try:
        return str(normalizer.normalize_str(text))
    except UnicodeEncodeError:
        raise _not_unicode([text]) from None


def _train_characters(
    texts: Iterable[str], vocab_size: int | None, normalizer: normalizers.Normalizer | None
) -> tokenizers.Tokenizer:
    if vocab_size is not None and vocab_size <= len(SPECIALS):
        raise UsageError(f"vocab_size must be above {len(SPECIALS)}, got {vocab_size}")
    characters = [c for c, _ in _by_frequency(_count_characters(normalizer, texts))]
    kept = characters[: None if vocab_size is None else vocab_size - len(SPECIALS)]
    if len(kept) < len(characters):
        _log.warning(
            "%d of %d characters have no token (vocab_size %d): %s",
            len(characters) - len(kept),
            len(characters),
            vocab_size,
            " ".join(map(repr, characters[len(kept) :][:20])),
        )
    vocab = {token: i for i, token in enumerate((*SPECIALS, *kept))}
    core = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=SPECIALS[UNK]))
    core.normalizer = normalizer
    # [\s\S] is any code point, line breaks and combining marks included: no grapheme is kept whole.
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    # UNK is a token of the model only: named here, decoding would swallow it.
    core.add_special_tokens(list(SPECIALS[:UNK]))
    return core


def _train_bytes(
    texts: Iterable[str], vocab_size: int | None, normalizer: normalizers.Normalizer | None
) -> tokenizers.Tokenizer:
    if vocab_size is None or vocab_size < SMALLEST_BPE:
        raise UsageError(
            f"vocab_size must be at least {SMALLEST_BPE} (256 bytes and {len(SPECIALS)} special "
            f"tokens) for byte-level BPE, got {vocab_size}"
        )
    core = tokenizers.Tokenizer(models.BPE())
    core.normalizer = normalizer
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    if (reached := core.get_vocab_size()) < vocab_size:
        _log.info("the texts give %d tokens, fewer than vocab_size = %d", reached, vocab_size)
    return core


@dataclass(frozen=True)
class TokenizerKind:
    """A way to tokenize. A new kind is a function that trains it and its row in `KINDS`."""

    name: str
    about: str
    train: Callable[..., tokenizers.Tokenizer]
    """train(texts, vocab_size or None, normalizer or None) -> the library's tokenizer."""
    parts: tuple[str, str, str]
    """The types of model, pre-tokenizer and decoder by which its file is known."""
    smallest: int
    """The fewest tokens that a vocabulary has."""
    any_text: bool
    """Whether it has tokens for every character there is."""
    joins_spaces: bool
    """Whether a space belongs to the token after it."""


SMALLEST_BPE = BYTES + len(SPECIALS)
KINDS: dict[str, TokenizerKind] = {
    kind.name: kind
    for kind in (
        TokenizerKind(
            "bpe",
            "byte-level pieces, which can write any text",
            _train_bytes,
            ("BPE", "ByteLevel", "ByteLevel"),
            SMALLEST_BPE,
            any_text=True,
            joins_spaces=True,
        ),
        TokenizerKind(
            "char",
            "whole characters",
            _train_characters,
            ("WordLevel", "Split", "Fuse"),
            len(SPECIALS),
            any_text=False,
            joins_spaces=False,
        ),
    )
}


def _count_characters(
    normalizer: normalizers.Normalizer | None, texts: Iterable[str]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_normalised(normalizer, text))
    return counts


def _by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _not_unicode(texts: Sequence[str]) -> UserError:
    """Return what to raise where one of these texts holds half of a surrogate pair."""
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return UserError(f"not Unicode text: {text!a}")
    raise TypeError("expected a sequence of str")


def _kind_of(file: Any) -> str | None:
    """Return what a parsed tokenizer.json holds, or None if it is not one of ours."""
    model, vocab = file["model"], file["model"]["vocab"]
    if sorted(vocab.values()) != list(range(len(vocab))):
        return None
    if [vocab.get(token) for token in SPECIALS] != [PAD, BOS, EOS, UNK]:
        return None
    if any(vocab.get(token["content"]) != token["id"] for token in file["added_tokens"]):
        return None
    parts = (model["type"], file["pre_tokenizer"]["type"], file["decoder"]["type"])
    for kind in KINDS.values():
        if parts == kind.parts and len(vocab) >= kind.smallest:
            return kind.name
    return None
