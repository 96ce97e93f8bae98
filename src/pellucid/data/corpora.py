"""The corpora that recipes name: where each is from, under which terms, and how it is read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pellucid.core.errors import UsageError, optional
from pellucid.core.settings import nearest
from pellucid.data.pairs import Pair, Pairs, split_by_hash
from pellucid.data.sources import PackageFiles, RemoteFile


@dataclass(frozen=True)
class Corpus:
    """A public set of pairs. `read` takes the name of one of its `splits`, the first by default."""

    name: str
    about: str
    origin: str
    licence: str
    citation: str
    read: Callable[[str], Pairs]
    splits: tuple[str, ...] = ("default",)
    files: tuple[RemoteFile, ...] = ()
    """What must be downloaded where PELLUCID_DATA does not have it; nothing of a package's data."""

    @property
    def at_hand(self) -> bool:
        """Whether PELLUCID_DATA has every file, so that reading downloads nothing."""
        return all(file.own() for file in self.files)


def find_corpus(name: str) -> Corpus:
    """Return a corpus by its name. Raises `UsageError` with the nearest name that exists."""
    if name not in CORPORA:
        raise UsageError(
            f"no corpus {name!r}{nearest(name, CORPORA)}; there are: {', '.join(CORPORA)}"
        )
    return CORPORA[name]


def load_corpus(name: str, split: str | None = None) -> Pairs:
    """Read a corpus, split as named.

    Raises `UsageError` for an unknown name, `UserError` when its data cannot be had.
    """
    corpus = find_corpus(name)
    if split is not None and split not in corpus.splits:
        raise UsageError(
            f"corpus {name} has no split {split!r}{nearest(split, corpus.splits)}; "
            f"it has: {', '.join(corpus.splits)}"
        )
    return corpus.read(split or corpus.splits[0])


# chatterbot-ko ------------------------------------------------------------------------------------

_CHATTERBOT = PackageFiles(
    "chatterbot-corpus",
    "1.3.3",
    "chatterbot_corpus/data/korean/*.yml",
    "e6402b98c920b5f8faf4095cc342f560e571399487b922ca63c6781f27868c36",
)


def _read_chatterbot(split: str) -> Pairs:
    """Every later turn of a conversation answers its first: most list several answers.

    There is too little to hold anything out; what is learnt is remembered.
    """
    yaml = optional(
        "yaml", "the Korean conversations are YAML; install its reader: pip install pyyaml"
    )
    answers: dict[str, dict[str, None]] = {}  # dict: a set that keeps its order
    for data in _CHATTERBOT.read().values():
        for turns in yaml.safe_load(data)["conversations"]:
            question, *others = map(_one_space, turns)
            answers.setdefault(question, {}).update(dict.fromkeys(others))
    return Pairs(tuple(Pair(question, tuple(others)) for question, others in answers.items()))


# g2p-en -------------------------------------------------------------------------------------------

_MISAKI = PackageFiles(
    "misaki",
    "0.9.4",
    "misaki/data/us_gold.json",
    "dc414872a49a28ae6c141463d502fd945f3b2fde040484fdc47d00cc4612686f",
    " (needs Python below 3.13)",
)

# Hyphenated entries are left out: their halves are entries too, and would stand on both sides.
_PLAIN_WORD = re.compile(r"[a-z']*[a-z][a-z']*")


def _read_pronunciations(split: str) -> Pairs:
    lexicon = json.loads(_MISAKI.read()["us_gold.json"])
    parts = split_by_hash(pronunciations(lexicon), valid=0.02, test=0.04)
    return replace(parts, first_target_only=True)


def pronunciations(lexicon: dict[str, str | dict[str, str | None]]) -> list[Pair]:
    """Gather the pronunciations of each plain word under its lower-cased spelling.

    A value is a pronunciation or a mapping by part of speech, null where that one has none. Of the
    spellings that differ by case only, the lower-case one is preferred; then the default part of
    speech; then the order of the file.

    >>> pronunciations({"US": "juɛs", "us": {"NOUN": None, "DEFAULT": "ʌs"}, "x-ray": "ɛksɹA"})
    [Pair(source='us', targets=('ʌs', 'juɛs'))]
    """
    said: dict[str, dict[str, None]] = {}
    for spelling in sorted(lexicon, key=lambda word: not word.islower()):
        value = lexicon[spelling]
        by_part = value if isinstance(value, dict) else {"DEFAULT": value}
        ways = [by_part.get("DEFAULT"), *by_part.values()]
        if _PLAIN_WORD.fullmatch(word := spelling.lower()) and any(ways):
            said.setdefault(word, {}).update(dict.fromkeys(way for way in ways if way))
    return [Pair(word, tuple(ways)) for word, ways in sorted(said.items())]


# chatbot-ko ---------------------------------------------------------------------------------------

_SONGYS = RemoteFile(
    "chatbot_ko/ChatbotData.csv",
    "https://raw.githubusercontent.com/songys/Chatbot_data/"
    "4cf20d13fc46f5037fd1c531cd566e2dd9f72974/ChatbotData.csv",
    "287eb129695b577321c80ad397bb3c2279164d4ca577874d129fd3db5b30afe2",
)


def _read_chatbot(split: str) -> Pairs:
    """`by_answer` keeps all rows of one answer on one side: in a random split more than half of the
    held-out answers stand word for word in the rest. `all` trains on every row, as seed 003 does.
    """
    text = _SONGYS.read(CORPORA["chatbot-ko"].licence).decode("utf-8")
    pairs = tuple(
        Pair(row["Q"], (row["A"],)) for row in csv.DictReader(io.StringIO(text, newline=""))
    )
    if split == "all":
        return Pairs(pairs)
    return split_by_hash(pairs, valid=0.05, test=0.05, key=lambda pair: pair.target)


# multi30k -----------------------------------------------------------------------------------------

_MULTI30K_URL = (
    "https://raw.githubusercontent.com/multi30k/dataset/"
    "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
)
_MULTI30K_SHA256 = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
}
_MULTI30K = {
    name: RemoteFile(f"multi30k/{name}", _MULTI30K_URL + name, sha256)
    for name, sha256 in _MULTI30K_SHA256.items()
}


def _read_multi30k(source: str, target: str) -> Callable[[str], Pairs]:
    def read(split: str) -> Pairs:
        return Pairs(part("train"), part("val"), part("test_2016_flickr"))

    def part(name: str) -> tuple[Pair, ...]:
        sides = [lines(f"{name}.{language}.gz") for language in (source, target)]
        return tuple(Pair(s, (t,)) for s, t in zip(*sides, strict=True))

    def lines(name: str) -> list[str]:
        data = gzip.decompress(_MULTI30K[name].read(_MULTI30K_TERMS))
        return [_one_space(line) for line in data.decode("utf-8").removesuffix("\n").split("\n")]

    return read


_MULTI30K_TERMS = (
    "no licence file; derived from Flickr30K, whose images are for non-commercial research and "
    "education only; do not redistribute"
)


def _multi30k(source: str, target: str, about: str) -> Corpus:
    return Corpus(
        name=f"multi30k-{source}-{target}",
        about=about,
        origin="multi30k/dataset on GitHub, commit a3d2e0d, data/task1/raw",
        licence=_MULTI30K_TERMS,
        citation="Elliott, Frank, Sima'an, Specia (2016), Multi30K: Multilingual English-German "
        "Image Descriptions",
        read=_read_multi30k(source, target),
        files=tuple(_MULTI30K.values()),
    )


def _one_space(text: str) -> str:
    """Make every run of white space, no-break spaces included, one space; none at the edges."""
    return " ".join(text.split())


CORPORA = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            name="chatterbot-ko",
            about="Korean questions and answers, 356 questions with 696 answers, no held-out part",
            origin="the Python package chatterbot-corpus 1.3.3, data/korean",
            licence="BSD-3-Clause, Gunther Cox",
            citation="Gunther Cox, ChatterBot Corpus",
            read=_read_chatterbot,
        ),
        Corpus(
            name="g2p-en",
            about="American English spelling to pronunciation",
            origin="the Python package misaki 0.9.4, data/us_gold.json",
            licence="Apache-2.0",
            citation="hexgrad, misaki 0.9.4",
            read=_read_pronunciations,
        ),
        Corpus(
            name="chatbot-ko",
            about="Korean questions and answers of everyday life, parting and love, 11,823 rows",
            origin="songys/Chatbot_data on GitHub, commit 4cf20d1, ChatbotData.csv",
            licence="MIT, Youngsook Song",
            citation="Youngsook Song (2018), Chatbot_data_for_Korean v1.0",
            read=_read_chatbot,
            splits=("by_answer", "all"),
            files=(_SONGYS,),
        ),
        _multi30k("de", "en", "German image descriptions to English, 29,000 pairs"),
        _multi30k("en", "de", "English image descriptions to German, 29,000 pairs"),
    )
}
