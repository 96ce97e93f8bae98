"""Registry of corpora: `CORPORA` has the record of each by its name in recipes."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from pellucid.core.parts import Registry
from pellucid.core.settings import check_known
from pellucid.data.corpora.chatbot import read_chatbot, read_topics
from pellucid.data.corpora.chatterbot import read_chatterbot
from pellucid.data.corpora.inflections import read_inflections
from pellucid.data.corpora.multi30k import read_multi30k
from pellucid.data.corpora.pronunciations import read_pronunciations
from pellucid.data.corpora.sources import Contents, Corpus, RemoteFile
from pellucid.data.corpora.texts import read_manual, read_names
from pellucid.data.pairs import Splits
from pellucid.system.files import read_toml

READERS: dict[str, Callable[[Contents, str], Splits]] = {
    "chatterbot-ko": read_chatterbot,
    "g2p-en": read_pronunciations,
    "chatbot-ko": read_chatbot,
    "chatbot-ko-topics": read_topics,
    "inflections": read_inflections,
    "names": read_names,
    "manual": read_manual,
    "multi30k-de-en": partial(read_multi30k, source="de", target="en"),
    "multi30k-en-de": partial(read_multi30k, source="en", target="de"),
}
"""Function that reads each corpus: (contents, split) -> the pairs."""


def _corpora() -> Iterator[tuple[str, Corpus]]:
    """Yield (name, record) of each corpus in corpora.toml."""
    pages = read_toml(Path(__file__).with_name("corpora.toml"))
    for name, read in READERS.items():
        page = pages.get(pages[name].pop("like", ""), {}) | pages[name]
        own = tuple(RemoteFile(**file) for file in page["files"])
        contents = partial(_content, own, page["licence"])
        if "splits" in page:
            page["splits"] = tuple(page["splits"])
        fields = page | {"files": own, "read": partial(read, contents)}
        yield name, Corpus(name=name, **fields)


def _content(files: Iterable[RemoteFile], licence: str, end: str) -> bytes:
    """Read the first of a corpus's files whose path ends in `end`; licence: that of the corpus."""
    return next(file for file in files if file.path.endswith(end)).read(licence)


CORPORA: Registry[Corpus] = Registry(_corpora())


def find_corpus(name: str) -> Corpus:
    """Return the record of a corpus by its name.

    Raises `UsageError` for an unknown name; it suggests the nearest one and lists all.
    """
    return CORPORA.find(name, "data.corpus")


def load_corpus(name: str, split: str | None = None) -> Splits:
    """Read a corpus in the named split, by default its first.

    Raises `UsageError` for an unknown name or split, `UserError` if its data cannot be read or
    downloaded.
    """
    corpus = find_corpus(name)
    split = corpus.splits[0] if split is None else split
    check_known(f"split of {name}", split, corpus.splits)
    return corpus.read(split)


__all__ = ["CORPORA", "Corpus", "find_corpus", "load_corpus"]
