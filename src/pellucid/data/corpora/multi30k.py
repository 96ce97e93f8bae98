"""Read image descriptions in German and English (Multi30K)."""

import gzip

from pellucid.data.appearance import one_spaced
from pellucid.data.corpora.sources import Contents
from pellucid.data.pairs import Splits, TextPair


def read_multi30k(contents: Contents, _: str, source: str, target: str) -> Splits:
    """Read image descriptions as pairs of two languages, in the official split.

    The test pairs are those of test_2016_flickr. source, target: "de" or "en".
    """

    def lines(name: str) -> list[str]:
        text = gzip.decompress(contents(name)).decode("utf-8")
        return [one_spaced(line) for line in text.removesuffix("\n").split("\n")]

    def part(name: str) -> tuple[TextPair, ...]:
        sides = [lines(f"{name}.{language}.gz") for language in (source, target)]
        return tuple(TextPair(s, (t,)) for s, t in zip(*sides, strict=True))

    return Splits(part("train"), part("val"), part("test_2016_flickr"))
