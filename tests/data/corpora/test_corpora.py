from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pellucid.core.errors import UsageError
from pellucid.data.corpora import CORPORA, find_corpus, load_corpus
from pellucid.data.corpora.pronunciations import pronunciations
from pellucid.data.corpora.sources import RemoteFile
from pellucid.data.pairs import Splits, TextPair


def needs_data(path: str) -> pytest.MarkDecorator:
    folder = os.environ.get("PELLUCID_DATA")
    absent = folder is None or not Path(folder, path).exists()
    return pytest.mark.skipif(absent, reason=f"PELLUCID_DATA names no folder with {path}")


def sizes(pairs: Splits) -> tuple[int, int, int]:
    return len(pairs.train), len(pairs.valid), len(pairs.test)


def sides(pairs: Splits) -> tuple[tuple[TextPair, ...], ...]:
    return pairs.train, pairs.valid, pairs.test


def targets(pairs: tuple[TextPair, ...]) -> int:
    return sum(len(pair.targets) for pair in pairs)


def test_chatterbot_ko(corpus: Callable[[str], Splits]) -> None:
    pairs = corpus("chatterbot-ko")
    assert sizes(pairs) == (356, 0, 0)
    assert targets(pairs.train) == 696
    asked = {pair.source: pair.targets for pair in pairs.train}
    assert (
        asked["AI가 뭐지?"][0] == "인공지능은 공학 및 과학을 통해 생각하는 기계를 만든 것 입니다."
    )
    assert "카네이션" in " ".join(asked["심심해"])
    assert not any("  " in text for texts in asked.values() for text in texts)


def test_names_and_the_manual_need_no_files() -> None:
    names = load_corpus("names")
    assert len(names.train) + len(names.valid) == 1393
    assert 100 < len(names.valid) < 180
    texts = {pair.source for pair in (*names.train, *names.valid)}
    assert len(texts) == 1393
    assert set("".join(texts)) == set("abcdefghijklmnopqrstuvwxyz")
    manual = load_corpus("manual")
    (first,), (last,) = manual.train, manual.valid
    assert len(first.source) > 300_000
    assert first.source.count("\n") == pytest.approx(19 * last.source.count("\n"), rel=0.01)
    assert not manual.test
    assert not any(pair.targets for pair in (first, last, *names.train))


def test_g2p_en(corpus: Callable[[str], Splits]) -> None:
    pairs = corpus("g2p-en")
    assert sizes(pairs) == (80_653, 1_779, 3_473)
    assert [targets(side) for side in (pairs.train, pairs.valid, pairs.test)] == [
        81_319, 1_789, 3_510
    ]  # fmt: skip
    assert pairs.first_target_only
    spellings = [p.source for side in (pairs.train, pairs.valid, pairs.test) for p in side]
    assert len(set(spellings)) == 85_905
    assert set("".join(spellings)) == set("abcdefghijklmnopqrstuvwxyz'")
    by_source = {
        p.source: p.targets for side in (pairs.train, pairs.valid, pairs.test) for p in side
    }
    assert by_source["us"][0] == "ˌʌs"
    assert by_source["attention"] == ("ətˈɛnʧən",)
    assert all(text and text == text.strip() for texts in by_source.values() for text in texts)


def test_pronunciations_of_one_spelling_are_one_pair() -> None:
    lexicon: dict[str, str | dict[str, str | None]] = {
        "Polish": "pˈOlɪʃ",
        "POLISH": "pˈi",
        "polish": {"VERB": "pˈɑlɪʃ", "NOUN": None, "ADJ": "pˈOlɪʃ"},
        "read": {"VBD": "ɹˈɛd", "DEFAULT": "ɹˈid", "None": "ɹˈɛd"},
        "mute": {"NOUN": None},
        "don't": "dˈOnt",
        "'em": "əm",
        "x-ray": "ˈɛksɹˌA",
        "dr.": "dˈɑktəɹ",
        "café": "kæfˈA",
        "'": "x",
        "": "x",
    }
    assert pronunciations(lexicon) == [
        TextPair("'em", ("əm",)),
        TextPair("don't", ("dˈOnt",)),
        TextPair("polish", ("pˈɑlɪʃ", "pˈOlɪʃ", "pˈi")),
        TextPair("read", ("ɹˈid", "ɹˈɛd")),
    ]


@needs_data("chatbot_ko/ChatbotData.csv")
def test_chatbot_ko_whole() -> None:
    pairs = load_corpus("chatbot-ko", "all")
    assert sizes(pairs) == (11_823, 0, 0)
    assert len({pair.source for pair in pairs.train}) == 11_662
    assert len({pair.target for pair in pairs.train}) == 7_779
    assert sum("," in pair.source + pair.target for pair in pairs.train) == 75
    assert pairs.train[0] == TextPair("12시 땡!", ("하루가 또 가네요.",))
    assert not any(re.search("[\r\n]", pair.source + pair.target) for pair in pairs.train)


@needs_data("chatbot_ko/ChatbotData.csv")
def test_chatbot_ko_by_answer() -> None:
    pairs = load_corpus("chatbot-ko")
    assert sizes(pairs) == (10_577, 605, 641)
    answers = [{p.target for p in side} for side in sides(pairs)]
    assert sum(map(len, answers)) == len(set.union(*answers)) == 7_779
    assert sorted((*pairs.train, *pairs.valid, *pairs.test), key=repr) == sorted(
        load_corpus("chatbot-ko", "all").train, key=repr
    )


@needs_data("multi30k/train.de.gz")
def test_multi30k() -> None:
    pairs = load_corpus("multi30k-de-en")
    assert sizes(pairs) == (29_000, 1_014, 1_000)
    assert len(set(pairs.train)) == 28_997
    texts = [text for side in (pairs.train, pairs.valid, pairs.test) for p in side
             for text in (p.source, p.target)]  # fmt: skip
    assert all(text == " ".join(text.split()) != "" for text in texts)
    assert pairs.train[0].target == "Two young, White males are outside near many bushes."
    back = load_corpus("multi30k-en-de")
    assert [(p.target, p.source) for p in back.test] == [(p.source, p.target) for p in pairs.test]


def test_made_up_questions_are_split_by_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f'"질문, {n}",답 {n % 211},{n % 3}' for n in range(997)]
    data = "\r\n".join(["Q,A,label", *rows, ""]).encode()
    monkeypatch.setattr(RemoteFile, "read", lambda self, licence: data)
    whole = load_corpus("chatbot-ko", "all")
    assert sizes(whole) == (997, 0, 0)
    assert whole.train[-1] == TextPair("질문, 996", ("답 152",))
    chats, topics = load_corpus("chatbot-ko"), load_corpus("chatbot-ko-topics")
    answers = [{pair.target for pair in side} for side in sides(chats)]
    assert all(answers)
    assert sum(map(len, answers)) == len(set.union(*answers)) == 211
    asked = [[[pair.source for pair in side] for side in sides(one)] for one in (chats, topics)]
    assert asked[0] == asked[1]  # what one holds out, the other never trains on
    names = {pair.source: pair.targets for side in sides(topics) for pair in side}
    assert len(names) == 997
    assert [names[f"질문, {n}"] for n in range(3)] == [("everyday",), ("parting",), ("love",)]
    assert all(names[f"질문, {n}"] == names[f"질문, {n % 3}"] for n in range(997))


def test_made_up_lines_are_paired_in_both_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file has its own language, and one space between words."""

    def read(self: RemoteFile, licence: str) -> bytes:
        assert "non-commercial" in licence
        part, language, _ = Path(self.path).name.rsplit(".", 2)
        return gzip.compress(f"{part}  {language}\n c\t{language} \n".encode())

    monkeypatch.setattr(RemoteFile, "read", read)
    there, back = load_corpus("multi30k-de-en"), load_corpus("multi30k-en-de")
    assert there.train == (TextPair("train de", ("train en",)), TextPair("c de", ("c en",)))
    assert there.valid[0] == TextPair("val de", ("val en",))
    assert there.test[0] == TextPair("test_2016_flickr de", ("test_2016_flickr en",))
    turned = [[TextPair(p.target, (p.source,)) for p in side] for side in sides(back)]
    assert turned == [list(side) for side in sides(there)]


def test_made_nouns_are_split_by_noun_and_declined_by_rule() -> None:
    splits = load_corpus("inflections")
    nouns = [{pair.source.split("\t")[0] for pair in side} for side in sides(splits)]
    assert sum(map(len, sides(splits))) == 10_000
    assert sum(map(len, nouns)) == len(set.union(*nouns)) == 1250
    assert splits.train[0] == TextPair("pöridüf\tN;DAT;PL;PSS2S", ("pöridüflerine",))
    cells = [pair.source for side in sides(splits) for pair in side]
    assert len(set(cells)) == 10_000


def test_every_corpus_says_what_it_is() -> None:
    for name, corpus in CORPORA.items():
        assert name == corpus.name
        assert all((corpus.about, corpus.origin, corpus.licence, corpus.citation, corpus.splits))


@pytest.mark.parametrize(
    "ask, says",
    [
        (
            lambda: find_corpus("g2p"),
            r"data.corpus = 'g2p' is not known .did you mean g2p-en..; there are: ",
        ),
        (
            lambda: load_corpus("chatbot-ko", "al"),
            r"no split of chatbot-ko 'al' .did you mean all.*; there are: by_answer",
        ),
    ],
)
def test_unknown_names(ask: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        ask()


def test_the_same_pairs_in_every_process(corpus: Callable[[str], Splits]) -> None:
    script = (
        "import json; from pellucid.data.corpora import load_corpus; "
        "print(json.dumps([(p.source, p.targets) for p in load_corpus('chatterbot-ko').train]))"
    )
    here = [[p.source, list(p.targets)] for p in corpus("chatterbot-ko").train]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=env)
    assert json.loads(done.stdout) == here
