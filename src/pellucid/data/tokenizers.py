"""From text to token ids and back, exactly: whole characters or words, or byte-level pieces.

All are kept as a `tokenizer.json` in Hugging Face's format. Ids 0 to 3 always mean the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from pellucid.core.errors import UsageError, UserError
from pellucid.core.files import MOST_BYTES, read_file
from pellucid.core.settings import nearest
from pellucid.models.prefix import Spelled

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
BYTES = 256

NORMALISERS: dict[str, Callable[[], list[normalizers.Normalizer]]] = {
    "nfc": lambda: [normalizers.NFC()],
    "nfd": lambda: [normalizers.NFD()],
    "lowercase": lambda: [normalizers.Lowercase()],
    "whitespace": lambda: [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()],
    "punctuation": lambda: [normalizers.Replace(mark, f" {mark} ") for mark in "?.!,"],
}
"""What may be done to a text before it is tokenized: compose it (Unicode's NFC), decompose it (NFD:
Hangul into its letters, accents off their letters), lower-case it, make each run of white space one
space with none at the edges, put a space round each ? . ! and , (article 003)."""

_log = logging.getLogger(__name__)


class TokenizerLike(ABC):
    """What a task needs of a tokenizer, ours or another program's.

    A subclass has `encode` or `encode_all`, or both.
    """

    vocab_size: int
    unit = "characters"
    """What `unknown` counts, in the plural."""
    begins = True
    """Whether a text alone is read behind a begin token."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; special tokens leave no trace."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each id by itself."""

    def normalised(self, text: str) -> str:
        """Return a text as it comes back from encode and decode."""
        return self.decode(self.encode(text))

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the units that have no token; none where that is not known."""
        return {}

    @cached_property
    def spelled(self) -> Spelled:
        """What each token writes at the beginning of a text, and elsewhere; a special one nothing.

        By default a token writes what it is decoded to alone.
        """
        both = [self.decode([token]).encode() for token in range(self.vocab_size)]
        return [both, both]

    def beginning(self, text: str) -> tuple[bytes, tuple[bytes, ...]]:
        """Return how tokens write a text that goes on, and the characters that may not follow it.

        Those would change its last one, as an accent does.
        """
        return text.encode(), ()


class Tokenizer(TokenizerLike):
    """Tokenizes text, and joins tokens again.

    `decode(encode(text)) == text` for every text, once it is normalised; every character, or every
    word, must have been seen in training. A tokenizer that decomposes (NFD) composes what it
    decodes, as texts usually are (NFC).

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
        self.kind, self.unit = kind, KINDS[kind].unit
        forms = [step["type"] for step in _steps(core.normalizer)]
        forms = [form for form in forms if form in ("NFC", "NFD")]
        self.composes = forms[-1:] == ["NFD"]  # decomposed, and not composed again
        self.vocab_size: int = core.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without begin or end. What has no token has id 3 (`UNK`).

        Raises `UserError` when `text` holds half of a surrogate pair, which is no character.
        """
        # By itself: a batch of one waits for another thread.
        return self._own(self._encoding(text).ids)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts: `encode`, on all cores."""
        self._check_features(texts)
        try:
            encodings = self._core.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            raise _not_unicode(texts) from None
        return [self._own(encoding.ids) for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Return (id, start, end) of each token: it is that of `text[start:end]`.

        The tokens of one character in several pieces all have that character's span. Raises
        `UserError` as `encode` does.
        """
        encoding = self._encoding(text)
        return [(i, *s) for i, s in zip(self._own(encoding.ids), encoding.offsets, strict=True)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; begin, end and padding leave no trace.

        Unknown shows as <unk> among characters and words; bytes need none: it leaves no trace.
        Bytes that do not make a character, which only a model could put in a row, come out as
        U+FFFD.
        """
        text: str = self._core.decode(list(ids), skip_special_tokens=True)
        return unicodedata.normalize("NFC", text) if self.composes else text

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
        normal = _normalised(self._core.normalizer, text)
        return unicodedata.normalize("NFC", normal) if self.composes else normal

    @cached_property
    def spelled(self) -> Spelled:
        """What each token writes at the beginning of a text, and elsewhere; a special one nothing.

        >>> [every[4:] for every in train_tokenizer(["so be it"], kind="word").spelled]
        [[b'be', b'it', b'so'], [b' be', b' it', b' so']]
        """
        return spelled_by(self._core, range(len(SPECIALS)))

    def beginning(self, text: str) -> tuple[bytes, tuple[bytes, ...]]:
        """Return how tokens write a text that goes on, and the characters that may not follow it.

        The text is normalised but for white space at its end, which something follows.
        """
        normal = _normalised(self._core.normalizer, text)
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
        """Return the characters or words of a text, normalised: those that errors are counted in.

        >>> train_tokenizer(["AH0 B"], kind="word").units(" B  AH0 ")
        ['B', 'AH0']
        """
        return KINDS[self.kind].split(_normalised(self._core.normalizer, text))

    def unknown(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the units that have no token, most frequent first. Bytes always have one."""
        if KINDS[self.kind].bytewise:
            return {}
        counts = Counter(unit for text in texts for unit in self.units(text))
        known = self._core.get_vocab().keys() - set(SPECIALS)
        return {unit: n for unit, n in _by_frequency(counts) if unit not in known}

    def _check_features(self, texts: Iterable[str]) -> None:
        """Raise `UserError` for a text without the column that the tokenizer learnt to expect."""
        if self.kind != "features":
            return
        for text in texts:
            if "\t" not in text:
                raise UserError(
                    f"{shorten(text, 40, placeholder='…')!r} has no features: this model reads a "
                    "text, a tab, and its features with ; between them, as in walk<tab>V;PST"
                )

    def _encoding(self, text: str) -> Any:
        self._check_features([text])
        try:
            return self._core.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_unicode([text]) from None

    def _own(self, ids: list[int]) -> list[int]:
        """Return the ids of a text: a unit spelled as a special token is an unknown one."""
        return [max(i, UNK) for i in ids] if self.kind in ("word", "label") else ids

    @property
    def vocabulary(self) -> list[str]:
        """The tokens as the file spells them, in the order of their ids."""
        vocab = self._core.get_vocab(with_added_tokens=True)
        return sorted(vocab, key=vocab.__getitem__)

    @property
    def normalisers(self) -> tuple[str, ...]:
        """The names in `NORMALISERS` that it was trained with.

        >>> train_tokenizer(["a"], "word", normalise=["nfd", "lowercase"]).normalisers
        ('nfd', 'lowercase')
        """
        steps, found = _steps(self._core.normalizer), []
        known = {name: _steps(normalizers.Sequence(make())) for name, make in NORMALISERS.items()}
        while steps:
            name = next((name for name, own in known.items() if steps[: len(own)] == own), "")
            if not name:
                raise UserError(f"its normaliser has a step that is not ours: {steps[0]}")
            steps = steps[len(known[name]) :]
            found.append(name)
        return tuple(found[:-1] if self.kind == "word" else found)  # whose last is its own

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
        return Tokenizer.of_json(read_json_text(path), path)

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
                f"{path}: is not a tokenizer of Pellucid's; expected characters, words or "
                f"byte-level BPE with {', '.join(SPECIALS)} as ids 0 to 3"
            )
        try:
            made = Tokenizer(tokenizers.Tokenizer.from_str(text), kind)
            made.normalisers  # noqa: B018 - raises for other steps, which could multiply a text
            return made
        except Exception as error:  # the library raises bare Exception for every error in the file
            raise UserError(f"{path}: is damaged ({error}); copy it again") from None


def spelled_by(core: tokenizers.Tokenizer, silent: Collection[int] = ()) -> Spelled:
    """Return what each token of a tokenizer.json writes at the beginning of a text, and elsewhere.

    silent: tokens that write nothing, beside the special ones. A token of a byte, or of bytes that
    are no whole characters, writes what its name stands for.
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

    return [[spelled(*each) for each in enumerate(texts)] for texts in (alone, behind)]


@cache
def _byte_letters() -> dict[str, int]:
    """Return the byte of each letter that byte-level pieces are spelled with (Radford et al. 2019).

    A byte that Latin-1 shows is spelled as it is there, the others as the letters from 256 on.
    """
    shown = [b for b in range(BYTES) if b in range(33, 127) or (b > 160 and b != 173)]
    others = [b for b in range(BYTES) if b not in shown]
    return {chr(b): b for b in shown} | {chr(BYTES + n): b for n, b in enumerate(others)}


@cache
def _composed_with() -> tuple[str, ...]:
    """Return the characters that may become one with the character before them, or change it."""
    every = map(chr, range(sys.maxunicode + 1))
    return tuple(sorted({mark for c in every for mark in unicodedata.normalize("NFD", c)[1:]}))


def read_json_text(path: Path) -> str:
    """Return the text of a tokenizer.json. Raises `UserError` naming it when it cannot be read."""
    try:
        return read_file(path, MOST_BYTES).decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path}: is damaged (not UTF-8); copy it again") from None


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
    `kind` "features": likewise, but one token for each feature after the last tab, `V;PST`.
    `kind` "word": one for each word, which is what white space separates; likewise. White space is
    then normalised to one space.
    `kind` "bpe": byte-pair encoding on bytes (Sennrich et al. 2016; Radford et al. 2019), which can
    write any text. `vocab_size` counts the four special tokens; a corpus may be too small to fill
    it, and None takes every character or word. `normalise` names steps of `NORMALISERS`,
    in order.

    Raises `UsageError` for an unknown normaliser and a vocabulary too small for its alphabet,
    `UserError` for half of a surrogate pair.
    """
    way, texts = KINDS[kind], list(texts)
    core = tokenizers.Tokenizer(models.BPE())
    core.normalizer = _normalizer([*normalise, *["whitespace"] * (kind == "word")])
    core.pre_tokenizer, core.decoder = way.pre_tokenizer, way.decoder
    try:
        if way.bytewise:
            _learn_pieces(core, texts, vocab_size)
        else:
            _learn_units(core, way, texts, vocab_size)
    except (TypeError, UnicodeEncodeError):
        raise _not_unicode(texts) from None
    return Tokenizer(core, kind)


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


def _learn_units(
    core: tokenizers.Tokenizer, kind: TokenizerKind, texts: Iterable[str], vocab_size: int | None
) -> None:
    """Give a tokenizer a token for each unit of texts."""
    if vocab_size is not None and vocab_size <= len(SPECIALS):
        raise UsageError(f"vocab_size must be above {len(SPECIALS)}, got {vocab_size}")
    normal = (_normalised(core.normalizer, text) for text in texts)
    counts = Counter(unit for text in normal for unit in kind.split(text))
    units = [unit for unit, _ in _by_frequency(counts) if unit not in SPECIALS]
    kept = units[: None if vocab_size is None else vocab_size - len(SPECIALS)]
    if len(kept) < len(units):
        _log.warning(
            "no token for %d of %d %s (vocab_size %d): %s",
            len(units) - len(kept),
            len(units),
            kind.unit,
            vocab_size,
            " ".join(map(repr, units[len(kept) :][:20])),
        )
    vocab = {token: i for i, token in enumerate((*SPECIALS, *kept))}
    core.model = models.WordLevel(vocab, unk_token=SPECIALS[UNK])
    # UNK is a token of the model only: named here, decoding would swallow it.
    core.add_special_tokens(list(SPECIALS[:UNK]))


def _learn_pieces(core: tokenizers.Tokenizer, texts: Iterable[str], vocab_size: int | None) -> None:
    """Give a tokenizer byte-level pieces."""
    if vocab_size is None or vocab_size < SMALLEST_BPE:
        raise UsageError(
            f"vocab_size must be at least {SMALLEST_BPE} (256 bytes and {len(SPECIALS)} special "
            f"tokens) for byte-level BPE, got {vocab_size}"
        )
    trainer = trainers.BpeTrainer(
        vocab_size=min(vocab_size, 10**7),  # the library reserves it at once
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    if (reached := core.get_vocab_size()) < vocab_size:
        _log.info("the texts give %d tokens, fewer than vocab_size = %d", reached, vocab_size)


@dataclass(frozen=True)
class TokenizerKind:
    """A way to tokenize: byte-level pieces, or units that texts are split into."""

    name: str
    pre_tokenizer: Any
    decoder: Any
    """These two are the library's, and their types show of which kind a file is."""
    unit: str = "characters"
    """What its errors are counted in, and what may have no token, in the plural."""
    split: Callable[[str], list[str]] = list
    """split(normalised text) -> its units."""

    @property
    def bytewise(self) -> bool:
        """Whether it has tokens for every text; then a space belongs to the token after it."""
        return self.name == "bpe"


_WORDS = re.compile(r"[^\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What Unicode's white space separates. Python's own has four control characters more."""
_FEATURES = r"\t[^\t;]*|;[^\t;]*(?![^\t]*\t)|[\s\S]"
"""A tab with the feature after it; behind the last tab a semicolon with its own; any character."""
SMALLEST_BPE = BYTES + len(SPECIALS)
KINDS: dict[str, TokenizerKind] = {
    kind.name: kind
    for kind in (
        TokenizerKind(
            "bpe",
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            decoders.ByteLevel(),
        ),
        TokenizerKind(
            "char",
            # Any code point, line breaks and combining marks included: no grapheme is kept whole.
            pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated"),
            decoders.Fuse(),
        ),
        TokenizerKind(
            "features",
            pre_tokenizers.Split(Regex(_FEATURES), behavior="isolated"),
            decoders.Fuse(),
            unit="characters and features",
            split=re.compile(_FEATURES).findall,
        ),
        TokenizerKind(
            "word",
            pre_tokenizers.WhitespaceSplit(),
            # It puts a space before every token but the first, unless a token begins with the
            # prefix, which no word does.
            decoders.WordPiece(prefix=" ", cleanup=False),
            unit="words",
            split=_WORDS.findall,
        ),
        TokenizerKind(
            "label",
            pre_tokenizers.Sequence([]),
            decoders.Fuse(),
            unit="labels",
            split=lambda text: [text],
        ),
    )
}


def settled(text: str, tokenizer: TokenizerLike) -> str:
    """Return what of an answer's text no further token can change.

    The rest is half a character, or a character that the next may be composed with.
    """
    text = text.rstrip("\ufffd")
    if not getattr(tokenizer, "composes", False):
        return text
    end = len(text) - 1
    while end > 0 and unicodedata.combining(text[end]):
        end -= 1
    return text[: max(end, 0)]


def _steps(normalizer: normalizers.Normalizer | None) -> list[Any]:
    """Return the steps of a normalizer, those inside others too, as its file has them."""

    def flat(step: Any) -> list[Any]:
        inner = step.get("normalizers")
        return [step] if inner is None else [one for some in map(flat, inner) for one in some]

    return [] if normalizer is None else flat(json.loads(normalizer.__getstate__()))


def _by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _not_unicode(texts: Sequence[str]) -> UserError:
    """Return what to raise where one of these texts holds half of a surrogate pair."""
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            return UserError(f"not Unicode text: {text!a}")
        except AttributeError:
            break
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
    parts = (file["pre_tokenizer"]["type"], file["decoder"]["type"])
    pattern = file["pre_tokenizer"].get("pattern")
    for kind in KINDS.values():
        model_type, smallest = ("BPE", SMALLEST_BPE) if kind.bytewise else ("WordLevel", 0)
        known = (type(kind.pre_tokenizer).__name__, type(kind.decoder).__name__)
        own = json.loads(kind.pre_tokenizer.__getstate__()).get("pattern")
        if parts == known and pattern == own:
            fits = model["type"] == model_type and len(vocab) >= smallest
            return kind.name if fits else None
    return None
