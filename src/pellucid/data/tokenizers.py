"""Tokenizers by characters, words, labels or byte-level BPE: text to token ids and back.

All are saved as a `tokenizer.json` in Hugging Face's format. Ids 0 to 3 are the same in all of
them: padding, begin, end, unknown.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial, reduce
from pathlib import Path
from textwrap import shorten
from typing import Any

from pellucid.core.errors import UsageError, UserError, optional, raised_as
from pellucid.core.settings import check_known
from pellucid.data.appearance import WHITE, Reading, one_spaced
from pellucid.models.prefix import Spelled, Spelling
from pellucid.system.files import MOST_BYTES, read_file

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
BYTES = 256

NORMALISERS: dict[str, Callable[[str], str]] = {
    "nfc": partial(unicodedata.normalize, "NFC"),
    "nfd": partial(unicodedata.normalize, "NFD"),
    "lowercase": lambda text: "".join(map(str.lower, text)),
    "whitespace": one_spaced,
    "punctuation": partial(re.compile(r"[?.!,]").sub, r" \g<0> "),
}
"""Steps before a text is tokenized. nfc: compose letters; nfd: decompose them (Hangul into its
letters, accents off their letters); lowercase; whitespace: each run becomes one space, with none at
the edges; punctuation: put a space around each ? . ! and , (article 003)."""

_STEPS: dict[str, list[dict[str, Any]]] = {
    "nfc": [{"type": "NFC"}],
    "nfd": [{"type": "NFD"}],
    "lowercase": [{"type": "Lowercase"}],
    "whitespace": [
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ],
    "punctuation": [
        {"type": "Replace", "pattern": {"String": mark}, "content": f" {mark} "} for mark in "?.!,"
    ],
}
"""The entry of each of `NORMALISERS` in a tokenizer.json."""

_log = logging.getLogger(__name__)


class TokenizerLike(ABC):
    """Interface of a tokenizer, of Pellucid or of another program, for a task.

    A subclass defines `vocab_size`, `decode`, `tokens`, and `encode` or `encode_all`, or both.
    """

    vocab_size: int
    unit = "characters"
    """Plural noun for the units that `unknown` counts."""
    begins = True
    """Whether a text that is read alone gets a begin token."""

    def encode(self, text: str) -> list[int]:
        """Tokenize a text without begin and end tokens; return its ids."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize many texts as `encode` does."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; begin, end and padding are left out."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token by itself."""

    def normalised(self, text: str) -> str:
        """Return a text as it is after encoding and decoding."""
        return self.decode(self.encode(text))

    def units(self, text: str) -> list[str]:
        """Split a text into the units that `unknown` counts; by default its characters."""
        return list(text)

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Return how often each unit without a token occurs in texts; by default nothing is known.

        The dict is then empty.
        """
        return {}

    def knows(self, text: str) -> bool:
        """Return whether more than half of a text's units have a token.

        Only units with a letter or a digit count; if there are none, all but white space. True for
        a blank text, and for a tokenizer that does not know its `unknown` units.
        """
        units = [unit for unit in self.units(text) if unit.strip()]
        counted = [unit for unit in units if any(map(str.isalnum, unit))] or units
        unknown = self.unknown([text])
        strange = sum(n for unit, n in unknown.items() if unit in counted)
        return 2 * strange < len(counted) or not counted

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "spelled"}

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token at the beginning of a text, and elsewhere.

        They are empty for special tokens. By default a token has the bytes of its decoded text.
        """
        both = Spelling(self.decode([token]).encode() for token in range(self.vocab_size))
        return both, both

    def beginning(self, text: str) -> tuple[bytes, tuple[bytes, ...]]:
        """Return an unfinished text's bytes, and the characters that may not follow it.

        Those would change its last character, as a combining accent does; by default there are
        none.
        """
        return text.encode(), ()


class Tokenizer(TokenizerLike):
    """Tokenizer by characters, features, words or labels; the subclass `Pieces` does BPE.

    `decode(encode(text)) == normalised(text)` if all units of the text have a token: its
    characters, features, words or label. A tokenizer that decomposes letters (NFD) composes what it
    decodes (NFC), as texts usually are.

    >>> tokenizer = train_tokenizer(["banana"], kind="char")
    >>> tokenizer.encode("nab")
    [5, 4, 6]
    >>> tokenizer.decode([5, 4, 6])
    'nab'
    """

    def __init__(self, file: dict[str, Any], kind: str) -> None:
        self._file = file
        self.kind, self.unit = kind, KINDS[kind].unit
        vocab = self._vocab()
        self.vocabulary = sorted(vocab, key=vocab.__getitem__)
        """The tokens as the file spells them, in the order of their ids."""
        self.vocab_size = len(vocab)
        self._ids = {unit: i for unit, i in vocab.items() if i >= len(SPECIALS)}
        read = file.get("reading")
        self.reading = None if read is None else Reading(**read)
        """Rewriting of typed text into the characters of the training texts."""
        self._steps = () if KINDS[kind].bytewise else _names(file["normalizer"])
        steps = _flat(file["normalizer"])
        forms = [step["type"] for step in steps if step["type"] in ("NFC", "NFD")]
        self.composes = forms[-1:] == ["NFD"]  # decomposed, and not composed again

    def encode(self, text: str) -> list[int]:
        """Tokenize a text without begin and end tokens; return its ids.

        A unit without a token has id 3 (`UNK`), also if it is spelled as a special token. Raises
        `UserError` for half of a surrogate pair in the text, and, with kind "features", for a text
        without a tab.
        """
        self._check_features(text)
        return [self._ids.get(unit, UNK) for unit in self.units(text)]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token; it is made from `text[start:end]`.

        Tokens that are made from the same characters have the same span. Raises `UserError` as
        `encode` does.
        """
        self._check_features(text)
        parts = [(c, i, i + 1) for i, c in enumerate(checked_text(text))]
        for step in (self._read, *map(NORMALISERS.__getitem__, self._steps)):
            parts = aligned(step, parts)
        normal = "".join(c for c, *_ in parts)
        units = [match.span() for match in KINDS[self.kind].pattern.finditer(normal)]
        return [
            (self._ids.get(normal[a:b], UNK), parts[a][1], max(end for *_, end in parts[a:b]))
            for a, b in units
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids; begin, end, padding and ids without a token are left out.

        The unknown token becomes <unk>, except in byte-level BPE, which leaves it out. Bytes that
        are no whole character, as a model may generate them, become U+FFFD.
        """
        text = self._joined(ids)
        return unicodedata.normalize("NFC", text) if self.composes else text

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token by itself, for display.

        Special tokens have their names, such as <s>. Incomplete characters are U+FFFD. Letters stay
        decomposed if the tokenizer decomposes them.
        """
        return [SPECIALS[i] if i < len(SPECIALS) else self._joined([i]) for i in ids]

    def normalised(self, text: str) -> str:
        """Return a text as `encode` normalises it, with letters composed as by `decode`.

        It equals `decode(encode(text))` if every unit has a token. Raises `UserError` for half of a
        surrogate pair.
        """
        normal = self._normal(text)
        return unicodedata.normalize("NFC", normal) if self.composes else normal

    @cached_property
    def spelled(self) -> Spelled:
        """The bytes of each token at the beginning of a text, and elsewhere.

        They are empty for special tokens. They differ for words, which have a space before them
        elsewhere.

        >>> [every[4:] for every in train_tokenizer(["so be it"], kind="word").spelled]
        [[b'be', b'it', b'so'], [b' be', b' it', b' so']]
        """
        special = [b""] * len(SPECIALS)
        alone = [token.encode() for token in self.vocabulary[len(SPECIALS) :]]
        joint = KINDS[self.kind].joint.encode()
        behind = [joint + token for token in alone]
        return Spelling(special + alone), Spelling(special + behind)

    def beginning(self, text: str) -> tuple[bytes, tuple[bytes, ...]]:
        """Return an unfinished text's bytes, and the characters that may not follow it.

        The text is normalised. White space that this strips from its end becomes one space, because
        text follows. Only a tokenizer that decomposes letters (NFD) has characters that may not
        follow: those that `decode` would compose with the last one.
        """
        normal = self._normal(text)
        if normal and text[-1].isspace() and not normal[-1].isspace():
            normal += " "
        if not (self.composes and normal):
            return normal.encode(), ()
        written = unicodedata.normalize("NFC", normal)
        changes = (
            mark
            for mark in _composed_with()
            if not unicodedata.normalize("NFC", normal + mark).startswith(written)
        )
        return normal.encode(), tuple(mark.encode() for mark in changes)

    def units(self, text: str) -> list[str]:
        """Split a text into the units of error rates, after normalisation.

        These are the words of a tokenizer of words, the whole text for one of labels, else
        characters; each feature is one unit.

        >>> train_tokenizer(["AH0 B"], kind="word").units(" B  AH0 ")
        ['B', 'AH0']
        """
        return KINDS[self.kind].pattern.findall(self._normal(text))

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Return how often each unit without a token occurs in texts, most frequent first."""
        counts = Counter(unit for text in texts for unit in self.units(text))
        return {unit: n for unit, n in by_frequency(counts) if unit not in self._ids}

    def with_new(self, texts: Iterable[str], as_written: bool = False) -> Tokenizer:
        """Return a tokenizer with additional tokens for the unknown units of these texts.

        Existing tokens keep their ids. as_written: the tokenizer's `reading` is changed so that it
        leaves these texts unchanged, except for white space. A tokenizer of kind "bpe" or "word" is
        returned unchanged.

        >>> train_tokenizer(["ab"], "char").with_new(["bcc"]).encode("abc")
        [4, 5, 6]
        """
        if self.kind in ("bpe", "word"):
            return self
        texts, reading = list(texts), self.reading
        reading = reading.beside(texts) if reading and as_written else reading
        read = {} if reading is None else {"reading": asdict(reading)}
        made = Tokenizer(self._file | read, self.kind)
        units = [unit for unit in made.unknown(texts) if unit not in SPECIALS]
        vocab = self._vocab() | {unit: i for i, unit in enumerate(units, self.vocab_size)}
        return Tokenizer(made._file | {"model": self._file["model"] | {"vocab": vocab}}, self.kind)

    def _check_features(self, text: str) -> None:
        """Raise `UserError` if a text lacks the column of features that is expected."""
        if self.kind == "features" and "\t" not in text:
            raise UserError(
                f"{shorten(text, 40, placeholder='…')!r} has no features: this model reads a "
                "text, a tab, and its features with ; between them, as in walk<tab>V;PST"
            )

    def _joined(self, ids: Sequence[int]) -> str:
        """Join the tokens of ids, without begin, end and padding."""
        shown = range(UNK, self.vocab_size)
        return KINDS[self.kind].joint.join(self.vocabulary[i] for i in ids if i in shown)

    def _vocab(self) -> dict[str, int]:
        """Return the ids of all tokens."""
        found: dict[str, int] = self._file["model"]["vocab"]
        return found

    def _normal(self, text: str) -> str:
        """Apply the reading and the normalisers to a text."""
        text = self._read(text)
        return normaliser(self._steps)(text) if self._steps else text

    def _read(self, text: str) -> str:
        """Apply the `Reading` to a text. Raises `UserError` for text that is not Unicode."""
        return checked_text(text) if self.reading is None else self.reading(checked_text(text))

    @property
    def normalisers(self) -> tuple[str, ...]:
        """The names in `NORMALISERS` that the tokenizer was trained with.

        >>> train_tokenizer(["a"], "word", normalise=["nfd", "lowercase"]).normalisers
        ('nfd', 'lowercase')
        """
        found = _names(self._file["normalizer"])
        return found[:-1] if self.kind == "word" else found  # whose last is its own

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary, in hexadecimal.

        A model folder records it to detect another tokenizer.
        """
        return hashlib.sha256(json.dumps(self.vocabulary).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the text of `tokenizer.json`, which is the same each time."""
        return json.dumps(self._file, indent=2, ensure_ascii=False) + "\n"

    def save(self, path: Path) -> None:
        """Write the text of `to_json` to the file `path`."""
        path.write_bytes(self.to_json().encode("utf-8"))

    @staticmethod
    def load(path: Path) -> Tokenizer:
        """Read a `tokenizer.json` that `save` wrote.

        Raises `UserError` naming the file if it cannot be read, is damaged or is not Pellucid's;
        also if kind "bpe" lacks the package tokenizers.
        """
        return Tokenizer.of_json(read_json_text(path), path)

    @staticmethod
    def of_json(text: str, path: Path = Path("tokenizer.json")) -> Tokenizer:
        """Make the tokenizer of a text from `to_json`; raises as `load`, naming `path`."""
        try:
            file = json.loads(text)
            kind = _kind_of(file)
        except (ValueError, RecursionError):
            raise UserError(f"{path}: is damaged (not JSON); copy it again") from None
        except (LookupError, TypeError, AttributeError):
            kind = None
        if kind is None:
            raise UserError(
                f"{path}: is not a tokenizer of Pellucid's; expected characters, words or "
                f"byte-level BPE with {', '.join(SPECIALS)} as ids 0 to 3"
            )
        made_by = _pieces().Pieces if KINDS[kind].bytewise else Tokenizer
        # The library raises bare Exception for every error in the file.
        with raised_as(UserError, Exception, where=f"{path}: is damaged, copy it again"):
            made: Tokenizer = made_by(file, kind)
            made.normalisers  # noqa: B018 - raises for other steps, which could multiply a text
        return made


def spelled_by(core: Any, silent: Collection[int] = ()) -> Spelled:
    """Return the bytes of each token of a Hugging Face tokenizer.

    They are returned twice: at the beginning of a text, and later in it. core: a tokenizer of the
    package tokenizers. silent: further tokens without bytes, in addition to special ones. A token
    that is a byte, or bytes that are not whole characters, has the bytes that its name spells.
    """
    names = {token: name for name, token in core.get_vocab(with_added_tokens=True).items()}
    tokens = [[token] if token in names else [] for token in range(max(names, default=-1) + 1)]
    alone = core.decode_batch(tokens)
    anchor = next((token for token, text in enumerate(alone) if text.isalnum()), 0)
    behind = core.decode_batch([[anchor, *token] for token in tokens])
    behind = [text[len(alone[anchor]) :] for text in behind]

    def spelled(token: int, text: str) -> bytes:
        name = names.get(token, "")
        if token in silent or "\ufffd" not in text:
            return b"" if token in silent else text.encode()
        if byte := re.fullmatch("<0x([0-9A-F]{2})>", name):
            return bytes.fromhex(byte[1])
        known = _byte_letters()
        return bytes(known[c] for c in name) if set(name) <= known.keys() else text.encode()

    first, later = (
        Spelling(spelled(*each) for each in enumerate(texts)) for texts in (alone, behind)
    )
    return first, later


@cache
def _byte_letters() -> dict[str, int]:
    """Return the byte of each character that represents one in byte-level BPE.

    Source: Radford et al. 2019 (GPT-2). A byte that is a printable Latin-1 character is that
    character; the others are U+0100, U+0101, ...
    """
    shown = [b for b in range(BYTES) if b in range(33, 127) or (b > 160 and b != 173)]
    others = [b for b in range(BYTES) if b not in shown]
    return {chr(b): b for b in shown} | {chr(BYTES + n): b for n, b in enumerate(others)}


@cache
def _composed_with() -> tuple[str, ...]:
    """Return all characters that may combine with the character before them."""
    every = map(chr, range(sys.maxunicode + 1))
    return tuple(sorted({mark for c in every for mark in unicodedata.normalize("NFD", c)[1:]}))


def read_json_text(path: Path) -> str:
    """Read the text of a tokenizer.json. Raises `UserError` naming it if that fails."""
    try:
        return read_file(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is damaged (not UTF-8); copy it again") from None


def normaliser(names: Sequence[str]) -> Callable[[str], str]:
    """Return a function that applies steps of `NORMALISERS` to a text, in order.

    Raises `UsageError` for an unknown step. The function raises `UserError` for half of a surrogate
    pair.

    >>> normaliser(["lowercase", "whitespace"])(" A  B")
    'a b'
    """
    for name in names:
        check_known("normaliser", name, NORMALISERS)
    return lambda text: reduce(
        lambda text, name: NORMALISERS[name](text), names, checked_text(text)
    )


def train_tokenizer(
    texts: Iterable[str],
    kind: str = "bpe",
    vocab_size: int | None = None,
    normalise: Sequence[str] = (),
    reading: Reading | None = None,
) -> Tokenizer:
    """Learn a tokenizer from texts; the same arguments always give the same tokenizer.

    kind: "char", one token per code point, the most frequent first; ties in code point order.
    "features": the same, but each feature is one token with the sign before it: <tab>V and ;PST in
    walk<tab>V;PST. "word": one token per word between white space, which is normalised to one
    space. "label": one token per text. "bpe": byte-pair encoding on bytes (Sennrich et al. 2016;
    Radford et al. 2019), which can represent any text.

    vocab_size: the most tokens, with the four special ones. "bpe" needs it, at least 260; None: all
    characters or words. With fewer the rarest have no token; a warning lists up to 20. normalise:
    names in `NORMALISERS`, applied in order. reading: the tokenizer's `Reading`, applied before
    them to the texts it encodes; not to these, which it leaves unchanged (`reading_of`).

    Raises `UsageError` for an unknown normaliser and for a `vocab_size` that is too small (below
    260 for "bpe", below 5 for the others), `UserError` for half of a surrogate pair, or if "bpe"
    lacks the package tokenizers, `KeyError` for an unknown kind.
    """
    normalise = [*normalise, *["whitespace"] * (kind == "word")]
    way, normal = KINDS[kind], normaliser(normalise)
    texts = [normal(text) for text in texts]
    read = {} if reading is None else {"reading": asdict(reading)}
    if not way.bytewise:
        return Tokenizer(way.file(_vocabulary(way, texts, vocab_size), normalise) | read, kind)
    if vocab_size is None or vocab_size < SMALLEST_BPE:
        raise UsageError(
            f"vocab_size must be at least {SMALLEST_BPE} (256 bytes and {len(SPECIALS)} special "
            f"tokens) for byte-level BPE, got {vocab_size}"
        )
    made: Tokenizer = _pieces().learn(way.file({}, normalise) | read, texts, vocab_size)
    if made.vocab_size < vocab_size:
        _log.info(f"the texts give {made.vocab_size} tokens, fewer than vocab_size = {vocab_size}")
    return made


def library() -> Any:
    """Import Hugging Face's package tokenizers; return the module.

    Raises `UserError` if it is not installed.
    """
    needed = "tokenizers that join bytes or are another program's need the package tokenizers"
    return optional("tokenizers", needed, extra="train")


def _pieces() -> Any:
    """Import the module `pieces`, which needs Hugging Face's tokenizers."""
    library()
    return importlib.import_module("pellucid.data.pieces")


def _vocabulary(kind: TokenizerKind, texts: Iterable[str], size: int | None) -> dict[str, int]:
    """Return the ids of the special tokens and of the units of normalised texts.

    size: the most tokens; the most frequent units are kept.
    """
    if size is not None and size <= len(SPECIALS):
        raise UsageError(f"vocab_size must be above {len(SPECIALS)}, got {size}")
    counts = Counter(unit for text in texts for unit in kind.pattern.findall(text))
    units = [unit for unit, _ in by_frequency(counts) if unit not in SPECIALS]
    kept = units[: None if size is None else size - len(SPECIALS)]
    if len(kept) < len(units):
        some = " ".join(map(repr, units[len(kept) :][:20]))
        _log.warning(
            f"no token for {len(units) - len(kept)} of {len(units)} {kind.unit} (vocab_size "
            f"{size}): {some}"
        )
    return {token: i for i, token in enumerate((*SPECIALS, *kept))}


@dataclass(frozen=True)
class TokenizerKind:
    """A kind of tokenizer: how it splits a text, and its entries in tokenizer.json."""

    name: str
    pre_tokenizer: dict[str, Any]
    decoder: dict[str, Any]
    """pre_tokenizer and decoder are entries of Hugging Face's file; their types identify the
    kind."""
    unit: str = "characters"
    """Plural noun for the units of error rates and of unknown text."""
    pattern: re.Pattern[str] = re.compile(r"[\s\S]")
    """Matches the units of a normalised text one by one."""
    joint: str = ""
    """Text between the units when they are joined."""

    @property
    def bytewise(self) -> bool:
        """Whether it can represent every text by bytes.

        A space then belongs to the token after it.
        """
        return self.name == "bpe"

    def file(self, vocab: dict[str, int], normalise: Sequence[str]) -> dict[str, Any]:
        """Return the content of a tokenizer.json as a dict; for "bpe" without merges."""
        steps = [step for name in normalise for step in _STEPS[name]]
        # UNK is a token of the model only: named here, Hugging Face's decoding would swallow it.
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        added = [{"id": i, "content": SPECIALS[i], **flags, "special": True} for i in range(UNK)]
        model: dict[str, Any] = {"type": "WordLevel", "vocab": vocab, "unk_token": SPECIALS[UNK]}
        if self.bytewise:
            model, added = {"type": "BPE", "vocab": vocab, "merges": []}, []
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
            "pre_tokenizer": self.pre_tokenizer,
            "post_processor": None,
            "decoder": self.decoder,
            "model": model,
        }


_FEATURES = r"\t[^\t;]*|;[^\t;]*(?![^\t]*\t)|[\s\S]"
"""A tab and its feature; after the last tab, a semicolon and its feature; else any character."""


def _split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SMALLEST_BPE = BYTES + len(SPECIALS)
KINDS: dict[str, TokenizerKind] = {
    kind.name: kind
    for kind in (
        TokenizerKind("bpe", _BYTES, {**_BYTES, "add_prefix_space": True}),
        TokenizerKind(
            "char",
            # Any code point, line breaks and combining marks included: no grapheme is kept whole.
            _split(r"[\s\S]"),
            {"type": "Fuse"},
        ),
        TokenizerKind(
            "features",
            _split(_FEATURES),
            {"type": "Fuse"},
            unit="characters and features",
            pattern=re.compile(_FEATURES),
        ),
        TokenizerKind(
            "word",
            {"type": "WhitespaceSplit"},
            # It puts a space before every token but the first, unless a token begins with the
            # prefix, which no word does.
            {"type": "WordPiece", "prefix": " ", "cleanup": False},
            unit="words",
            pattern=re.compile(f"[^{WHITE}]+"),
            joint=" ",
        ),
        TokenizerKind(
            "label",
            {"type": "Sequence", "pretokenizers": []},
            {"type": "Fuse"},
            unit="labels",
            pattern=re.compile(r"[\s\S]+"),
        ),
    )
}


def settled(text: str, tokenizer: TokenizerLike) -> str:
    """Return the part of an answer's text that later tokens cannot change.

    An incomplete character, or one that a later accent may combine with, is cut off.
    """
    text = text.rstrip("\ufffd")
    if not getattr(tokenizer, "composes", False):
        return text
    end = len(text) - 1
    while end > 0 and unicodedata.combining(text[end]):
        end -= 1
    return text[: max(end, 0)]


def aligned(
    step: Callable[[str], str], parts: Sequence[tuple[str, int, int]]
) -> list[tuple[str, int, int]]:
    """Apply a normalisation step to characters that carry their original (start, end).

    The step is applied to the shortest runs of characters that it treats independently.
    """

    def inside(text: str) -> str:
        return step(f"|{text}|")[1:-1]  # what is dropped only at the ends stays

    runs: list[tuple[str, int, int]] = []
    for c, start, end in parts:
        run, first = runs[-1][:2] if runs else ("", start)
        if run and (unicodedata.combining(c) or inside(run + c) != inside(run) + inside(c)):
            runs[-1] = (run + c, first, end)
        else:
            runs.append((c, start, end))
    found = [(c, start, end) for run, start, end in runs for c in inside(run)]
    whole = step("".join(c for c, *_ in parts))
    at = "".join(c for c, *_ in found).find(whole)
    return found[at : at + len(whole)]


def _flat(normalizer: Any) -> list[Any]:
    """Return the steps of a normalizer in a tokenizer.json, nested ones included."""
    if normalizer is None:
        return []
    inner = normalizer.get("normalizers")
    return [normalizer] if inner is None else [step for one in inner for step in _flat(one)]


def _names(normalizer: Any) -> tuple[str, ...]:
    """Return the names in `NORMALISERS` of a file's normalizer.

    Raises `UserError` for others.
    """
    steps, found = _flat(normalizer), []
    while steps:
        name = next((name for name, own in _STEPS.items() if steps[: len(own)] == own), "")
        if not name:
            raise UserError(f"its normaliser has a step that is not ours: {steps[0]}")
        steps = steps[len(_STEPS[name]) :]
        found.append(name)
    return tuple(found)


def by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    """Sort units by frequency, the most frequent first; ties in code point order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def checked_text(text: str) -> str:
    """Return a text unchanged.

    Raises `UserError` for half of a surrogate pair in it, `TypeError` for anything but a str.
    """
    if not isinstance(text, str):
        raise TypeError("expected a sequence of str")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"not Unicode text: {text!a}") from None
    return text


def _kind_of(file: Any) -> str | None:
    """Return the kind of a parsed tokenizer.json, or None if Pellucid did not write it."""
    model, vocab = file["model"], file["model"]["vocab"]
    if sorted(vocab.values()) != list(range(len(vocab))):
        return None
    if [vocab.get(token) for token in SPECIALS] != [PAD, BOS, EOS, UNK]:
        return None
    if any(vocab.get(token["content"]) != token["id"] for token in file["added_tokens"]):
        return None
    parts = (file["pre_tokenizer"]["type"], file["decoder"]["type"])
    pattern = file["pre_tokenizer"].get("pattern")
    for kind in KINDS.values():
        model_type, smallest = ("BPE", SMALLEST_BPE) if kind.bytewise else ("WordLevel", 0)
        known = (kind.pre_tokenizer["type"], kind.decoder["type"])
        if parts == known and pattern == kind.pre_tokenizer.get("pattern"):
            fits = model["type"] == model_type and len(vocab) >= smallest
            return kind.name if fits else None
    return None
