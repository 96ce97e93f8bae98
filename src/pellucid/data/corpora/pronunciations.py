"""Read the American English pronunciations of the package misaki."""

import json
import re
from dataclasses import replace
from io import BytesIO
from zipfile import ZipFile

from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair, split_by_hash

# Hyphenated entries are left out: their halves are entries too, and would be on both sides.
_PLAIN_WORD = re.compile(r"[a-z']*[a-z][a-z']*")


def read_pronunciations(contents: Contents, _: str) -> Splits:
    """Read English words with all their pronunciations, split by hash.

    A model is trained on the first pronunciation of each word.
    """
    wheel = ZipFile(BytesIO(contents(".whl")))
    lexicon = json.loads(wheel.read("misaki/data/us_gold.json"))
    parts = split_by_hash(pronunciations(lexicon), valid=0.02, test=0.04)
    return replace(parts, first_target_only=True)


def pronunciations(lexicon: dict[str, str | dict[str, str | None]]) -> list[TextPair]:
    """Collect the pronunciations of each plain word under its lower-case spelling.

    Plain words have only the letters a to z and apostrophes; others are left out. A value of the
    lexicon is a pronunciation, or a mapping by part of speech, with null for none. Among spellings
    that differ by case, the lower-case one comes first; then the default part of speech; then the
    order of the file.

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
