"""Image descriptions in German and English (Multi30K)."""

from __future__ import annotations

import gzip

from pellucid.data.corpora.sources import Corpus, RemoteFile, one_space
from pellucid.data.pairs import Splits, TextPair

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
_MULTI30K_TERMS = (
    "no licence file; derived from Flickr30K, whose images are for non-commercial research and "
    "education only; do not redistribute"
)


def _lines(name: str) -> list[str]:
    data = gzip.decompress(_MULTI30K[name].read(_MULTI30K_TERMS))
    return [one_space(line) for line in data.decode("utf-8").removesuffix("\n").split("\n")]


def _multi30k(source: str, target: str, about: str) -> Corpus:
    def part(name: str) -> tuple[TextPair, ...]:
        sides = [_lines(f"{name}.{language}.gz") for language in (source, target)]
        return tuple(TextPair(s, (t,)) for s, t in zip(*sides, strict=True))

    return Corpus(
        name=f"multi30k-{source}-{target}",
        about=about,
        origin="multi30k/dataset on GitHub, commit a3d2e0d, data/task1/raw",
        licence=_MULTI30K_TERMS,
        citation="Elliott, Frank, Sima'an, Specia (2016), Multi30K: Multilingual English-German "
        "Image Descriptions",
        read=lambda _: Splits(part("train"), part("val"), part("test_2016_flickr")),
        files=tuple(_MULTI30K.values()),
        copied=False,
    )


MULTI30K_DE_EN = _multi30k("de", "en", "German image descriptions to English, 29,000 pairs")
MULTI30K_EN_DE = _multi30k("en", "de", "English image descriptions to German, 29,000 pairs")
