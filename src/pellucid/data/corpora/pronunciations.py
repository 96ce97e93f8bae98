"""American English pronunciations of the package misaki."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import BytesIO
from zipfile import ZipFile

from pellucid.data.corpora.sources import Corpus, RemoteFile
from pellucid.data.pairs import Splits, TextPair, split_by_hash

_MISAKI = RemoteFile(
    "misaki/misaki-0.9.4-py3-none-any.whl",
    "misaki==0.9.4",
    "90e2eeb169786c014c429e5058d2ea6bcd02d651f2a24450ba6c9ffc0f8da15a",
)

# Hyphenated entries are left out: their halves are entries too, and would be on both sides.
_PLAIN_WORD = re.compile(r"[a-z']*[a-z][a-z']*")


def _read_pronunciations(split: str) -> Splits:
    wheel = ZipFile(BytesIO(_MISAKI.read(G2P_EN.licence)))
    lexicon = json.loads(wheel.read("misaki/data/us_gold.json"))
    parts = split_by_hash(pronunciations(lexicon), valid=0.02, test=0.04)
    return replace(parts, first_target_only=True)


def pronunciations(lexicon: dict[str, str | dict[str, str | None]]) -> list[TextPair]:
    """Gather the pronunciations of each plain word under its lower-cased spelling.

    A value is a pronunciation or a mapping by part of speech, null where that one has none. Of the
    spellings that differ by case only, the lower-case one is preferred; then the default part of
    speech; then the order of the file.

    >>> pronunciations({"US": "juɛs", "us": {"NOUN": None, "DEFAULT": "ʌs"}, "x-ray": "ɛksɹA"})
    [TextPair(source='us', targets=('ʌs', 'juɛs'))]
    """
    found: dict[str, dict[str, None]] = {}
    for spelling in sorted(lexicon, key=lambda word: not word.islower()):
        value = lexicon[spelling]
        by_part = value if isinstance(value, dict) else {"DEFAULT": value}
        written = [by_part.get("DEFAULT"), *by_part.values()]
        if _PLAIN_WORD.fullmatch(word := spelling.lower()) and any(written):
            found.setdefault(word, {}).update(dict.fromkeys(one for one in written if one))
    return [TextPair(word, tuple(written)) for word, written in sorted(found.items())]


G2P_EN = Corpus(
    name="g2p-en",
    about="American English spelling to pronunciation",
    origin="the Python package misaki 0.9.4, data/us_gold.json",
    licence="Apache-2.0",
    citation="hexgrad, misaki 0.9.4",
    read=_read_pronunciations,
    files=(_MISAKI,),
)
