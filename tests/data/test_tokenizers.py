from __future__ import annotations

import itertools
import json
import logging
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.core.errors import UsageError, UserError
from pellucid.data.tokenizers import (
    BOS,
    EOS,
    KINDS,
    NORMALISERS,
    PAD,
    SPECIALS,
    UNK,
    Tokenizer,
    normaliser,
    settled,
    train_tokenizer,
)

KOREAN = [
    "마음이 있니?",
    "조금 있다.",
    "너는 무엇을 먹니?",
    "나는 <s>모든</s> 것을 먹는다 <pad><pad>",
] * 3

HARD = [
    "",
    " ",
    "  two at each edge  ",
    "\t\r\n\v\f\x85\u2028\u00a0\u3000\u200b\ufeff",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    unicodedata.normalize("NFD", "각 é ñ"),
    unicodedata.normalize("NFC", "각 é ñ"),
    "ㅋㅋㅋ ㅠㅠ ᄀ ᅡ",
    "\0\x7f\ufffd\U0010ffff",
    "don't I'll we've",
    *SPECIALS,
    "<s>a</s><unk> <pad>",
    "Ġ Ċ ##a ▁b",
]

BPE = train_tokenizer(KOREAN, "bpe", 307)
CHAR = train_tokenizer([*KOREAN, *HARD], "char")


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("tokenizer", [BPE, CHAR], ids=["bpe", "char"])
def test_hard_texts_come_back(tokenizer: Tokenizer, text: str, tmp_path: Path) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {PAD, BOS, EOS, UNK}
    assert all(i < tokenizer.vocab_size for i in ids)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode(text) == ids


@given(st.text())
def test_any_text_comes_back_from_bytes(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


@given(st.text())
def test_any_text_comes_back_from_its_own_characters(text: str) -> None:
    tokenizer = train_tokenizer([text], "char")
    ids = tokenizer.encode(text)
    assert (tokenizer.decode(ids), len(ids)) == (text, len(text))


def test_marks_leave_no_trace_and_unknown_shows() -> None:
    ids = CHAR.encode("먹니")
    assert CHAR.decode([BOS, *ids, EOS, PAD, PAD]) == "먹니"
    assert CHAR.encode("먹X") == [ids[0], UNK]
    assert CHAR.decode([ids[0], UNK]) == "먹<unk>"
    assert BPE.decode([UNK]) == ""
    assert CHAR.tokens([BOS, *ids, EOS]) == ["<s>", "먹", "니", "</s>"]


def test_half_a_character_is_the_replacement_character() -> None:
    ids = train_tokenizer([], "bpe", 260).encode("각")
    assert len(ids) == 3
    assert BPE.decode(ids[:1]) == "\ufffd"


def test_bpe_learns_pieces() -> None:
    assert BPE.vocab_size == 307
    assert len(BPE.encode("마음이 있니?")) < len("마음이 있니?".encode())


def test_a_small_corpus_does_not_fill_the_vocabulary(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert train_tokenizer(["ab ab ab"], "bpe", 1009).vocab_size < 270
    assert "fewer than vocab_size = 1009" in caplog.text


def test_unknown_are_counted() -> None:
    assert CHAR.unknown(["먹X", "ZX"]) == {"X": 2, "Z": 1}
    assert BPE.unknown(["X𐍈"]) == {}


def test_a_small_vocabulary_keeps_the_most_frequent(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(["ccc", "bb", "aa", "d"], "char", 7)
    assert [tokenizer.encode(c) for c in "cabd"] == [[4], [5], [6], [UNK]]
    assert "no token for 1 of 4 characters (vocab_size 7): 'd'" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_the_normaliser_is_kept_in_the_file(kind: str, tmp_path: Path) -> None:
    steps = ["whitespace", "lowercase", "nfc"]
    trained = train_tokenizer(["a b é ab", "a b é"], kind, 300, normalise=steps)
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "  A\u00a0\t B \nE\u0301 "
    assert loaded.decode(loaded.encode(text)) == "a b é"
    assert loaded.normalised(text) == normaliser(steps)(text) == "a b é"
    assert normaliser([])(text) == text
    assert loaded.unknown([text]) == {}


def test_words_are_what_spaces_separate(tmp_path: Path) -> None:
    trained = train_tokenizer(["AH0 B ##x", "AH0 <s> B,"], "word")
    trained.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.kind == "word"
    assert loaded.vocabulary[4:] == ["AH0", "##x", "B", "B,"]
    assert loaded.encode(" B\t\u3000##x  AH0 ") == [6, 5, 4]
    assert loaded.decode([BOS, 6, 5, 4, EOS]) == loaded.normalised(" B ##x  AH0") == "B ##x AH0"
    assert loaded.encode("<s> </s> C") == [UNK] * 3  # words spelled as special tokens are no tokens
    assert loaded.decode([4, UNK]) == "AH0 <unk>"
    assert loaded.tokens([EOS, 5]) == ["</s>", "##x"]
    assert loaded.unknown(["C B C <s>"]) == {"C": 2, "<s>": 1}
    assert [token for token, *_ in loaded.spans("B  C")] == [6, UNK]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("한국 각 값", "한국 각 "),
        ("é ộ ñ", "é ộ "),
        ("がパ", "が"),
        ("q\u0323\u0307\u0301", ""),
        ("a q\u0323\u0307\u0301", "a "),
        ("x", ""),
    ],
)
def test_letters_taken_apart_are_put_together_again(text: str, kept: str, tmp_path: Path) -> None:
    train_tokenizer([text], "char", normalise=["nfd"]).save(tmp_path / "tokenizer.json")
    trained = Tokenizer.load(tmp_path / "tokenizer.json")
    ids = trained.encode(text)
    assert "".join(trained.units(text)) == unicodedata.normalize("NFD", text)
    assert len(ids) == len(unicodedata.normalize("NFD", text))
    assert trained.decode(ids) == trained.normalised(text) == unicodedata.normalize("NFC", text)
    assert trained.unknown([text]) == {}
    # What is shown while an answer grows is never taken back, and all but the last letter is shown.
    grown = [settled(trained.decode(ids[:n]), trained) for n in range(len(ids) + 1)]
    for shown, whole in itertools.pairwise([*grown, trained.decode(ids)]):
        assert whole.startswith(shown)
    assert grown[-1] == unicodedata.normalize("NFC", kept)
    composing = train_tokenizer([text], "char", normalise=["nfd", "nfc"])
    assert not composing.composes
    assert composing.normalisers == ("nfd", "nfc")


def test_punctuation_is_separated_as_in_article_003() -> None:
    trained = train_tokenizer(["a"], "bpe", 300, normalise=["punctuation", "whitespace"])
    assert trained.decode(trained.encode("좋아,  응.정말?!")) == "좋아 , 응 . 정말 ? !"


def test_a_normaliser_acts_before_characters_are_counted() -> None:
    assert train_tokenizer(["AaBb"], "char", normalise=["lowercase"]).vocab_size == 4 + 2


def test_what_cannot_be_trained() -> None:
    with pytest.raises(UsageError, match="no normaliser 'upper'; there are: nfc, nfd, lowercase"):
        train_tokenizer(["a"], "char", normalise=["upper"])
    with pytest.raises(UsageError, match=r"no normaliser 'lower' \(did you mean lowercase\?\);"):
        normaliser(["lower"])
    with pytest.raises(UsageError, match="at least 260"):
        train_tokenizer(["a"], "bpe", 259)
    with pytest.raises(UsageError, match="above 4"):
        train_tokenizer(["a"], "char", 4)


def test_half_a_surrogate_pair_is_refused() -> None:
    for tokenizer in (BPE, CHAR):
        with pytest.raises(UserError, match=r"not Unicode text: 'b\\ud800'"):
            tokenizer.encode_all(["a", "b\ud800"])
    composing = train_tokenizer(["ab"], "char", normalise=["nfc"])
    paths: list[Callable[[str], object]] = [
        *[CHAR.spans, BPE.spans, composing.normalised, normaliser(["nfc"])],
        lambda text: composing.unknown(["a", text]),
    ]
    paths += [partial(lambda kind, x: train_tokenizer([x], kind, 300), kind) for kind in KINDS]
    for path in paths:
        with pytest.raises(UserError, match=r"not Unicode text: 'b\\ud800'"):
            path("b\ud800")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_is_refused(kind: Any) -> None:
    with pytest.raises(TypeError, match="expected a sequence of str"):
        train_tokenizer([b"b"], kind, 300)  # type: ignore[list-item]


def test_a_label_spelled_as_a_special_token_is_an_unknown_one() -> None:
    tokenizer = train_tokenizer(["yes", "<pad>"], "label")
    assert tokenizer.encode("<pad>") == [UNK]
    assert tokenizer.encode_all(["</s>", "yes"]) == [[UNK], [4]]


def test_a_vocabulary_larger_than_memory_is_no_more_than_the_texts_give() -> None:
    assert train_tokenizer(["ab ab"], "bpe", 10**12).vocab_size == 262


TRAIN = """
import sys
from pellucid.data.tokenizers import (
    NORMALISERS,NORMALISERS, train_tokenizer)
texts = [f"{n * n % 97} {chr(0xac00 + n * 37 % 997)}{n % 13}" for n in range(499)]
tokenizer = train_tokenizer(texts, sys.argv[1], 600, list(NORMALISERS))
sys.stdout.buffer.write(tokenizer.to_json().encode())
"""


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_file(kind: str) -> None:
    def trained(threads: str) -> bytes:
        env = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        # A child does not see pytest's pythonpath.
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        return subprocess.run(
            [sys.executable, "-c", TRAIN, kind], capture_output=True, check=True, env=env
        ).stdout

    first = trained("1")
    assert json.loads(first)["normalizer"]["type"] == "Sequence"
    assert first == trained("2") == trained("3")


def test_the_file_is_hugging_faces() -> None:
    import tokenizers

    core = tokenizers.Tokenizer.from_str(CHAR.to_json())
    assert core.encode("먹니").ids == CHAR.encode("먹니")
    assert [core.token_to_id(token) for token in SPECIALS] == [PAD, BOS, EOS, UNK]


def changed(change: Any) -> str:
    file = json.loads(CHAR.to_json())
    change(file)
    return json.dumps(file)


@pytest.mark.parametrize(
    "text, says",
    [
        (b"", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (CHAR.to_json().encode()[:700], "is damaged"),
        (b"[" * 100_000, "is damaged"),
        (b"{}", "is not a tokenizer of Pellucid's"),
        (b"[]", "is not a tokenizer of Pellucid's"),
        (b'"text"', "is not a tokenizer of Pellucid's"),
        (b"null", "is not a tokenizer of Pellucid's"),
        (b'{"model": {"vocab": [["a", -1.5]], "type": "Unigram"}}', "is not a tokenizer"),
        (
            changed(lambda f: f["model"]["vocab"].update({"<pad>": 1, "<s>": 0})).encode(),
            "is not a tokenizer",
        ),
        (changed(lambda f: f["model"]["vocab"].update(gap=99999)).encode(), "is not a tokenizer"),
        (changed(lambda f: f["model"]["vocab"].update(text="7")).encode(), "is not a tokenizer"),
        (changed(lambda f: f["added_tokens"][1].update(id=2)).encode(), "is not a tokenizer"),
        (changed(lambda f: f.update(decoder=None)).encode(), "is not a tokenizer"),
        (changed(lambda f: f.update(normalizer={"type": "Magic"})).encode(), "is damaged"),
    ],
)
def test_a_damaged_or_foreign_file(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(text)
    with pytest.raises(UserError, match=f"tokenizer.json: {says}"):
        Tokenizer.load(path)


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_a_normaliser_that_is_not_ours_is_refused(kind: str) -> None:
    text = train_tokenizer(["a b"] * 9, kind, 300, ["nfc", "punctuation"]).to_json()
    assert Tokenizer.of_json(text).normalisers == ("nfc", "punctuation")
    values = json.loads(text)
    doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    values["normalizer"]["normalizers"] += 30 * [doubled]
    with pytest.raises(UserError, match=r"a step that is not ours: .*'content': 'aa'"):
        Tokenizer.of_json(json.dumps(values))


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="cannot be read"):
            Tokenizer.load(path)


@pytest.mark.parametrize("tokenizer", [BPE, CHAR], ids=["bpe", "char"])
def test_the_vocabulary_is_the_files_in_the_order_of_the_ids(tokenizer: Tokenizer) -> None:
    written = json.loads(tokenizer.to_json())["model"]["vocab"]
    assert {token: i for i, token in enumerate(tokenizer.vocabulary)} == written
    assert tuple(tokenizer.vocabulary[: len(SPECIALS)]) == SPECIALS


def test_a_fingerprint_stays_what_it_was() -> None:
    """Model folders hold it: another one would make them unreadable."""
    tokenizer = train_tokenizer(["나비 banana"], "char")
    assert tokenizer.fingerprint == (
        "6b4c5696dc6a0559238b80d81e8ab633aaa2ff8e0ae32a5e4d3bc74faa41c9c4"
    )


@pytest.mark.parametrize(
    "blank", [chr(i) for i in range(28, 32)] + ["\t", "\x85", "\u2003", "\u3000"]
)
def test_what_separates_words_is_what_separated_them_in_training(blank: str) -> None:
    """Four control characters are white space to Python alone."""
    text = f"red{blank}car blue"
    trained = train_tokenizer([text], "word")
    assert UNK not in trained.encode(text)
    assert len(trained.encode(text)) == (2 if "\x1c" <= blank <= "\x1f" else 3)


def test_features_behind_a_tab_are_a_token_each(tmp_path: Path) -> None:
    """A semicolon inside the word itself is a character like any other."""
    texts = ["a;b\tV;PST", "walk\tV;PST;3", "walk\tV", "x\ty;z\tN;PL", "\t;", "n\n\tN;PL"]
    tokenizer = train_tokenizer(texts, "features")
    units = [tokenizer.tokens(tokenizer.encode(text)) for text in texts]
    assert units[0] == ["a", ";", "b", "\tV", ";PST"]
    assert units[1] == [*"walk", "\tV", ";PST", ";3"]
    assert units[3] == ["x", "\ty", ";", "z", "\tN", ";PL"]
    assert units[5] == ["n", "\n", "\tN", ";PL"]
    assert [tokenizer.units(text) for text in texts] == units
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.kind, loaded.encode(texts[0])) == ("features", tokenizer.encode(texts[0]))
    assert Tokenizer.of_json(CHAR.to_json()).kind == "char"
    assert tokenizer.unknown(["walk\tV;FUT"]) == {";FUT": 1}


def test_a_text_without_features_is_refused_where_they_are_expected() -> None:
    tokenizer = train_tokenizer(["walk\tV;PST"], "features")
    for read in (tokenizer.encode, tokenizer.spans, lambda text: tokenizer.encode_all([text])):
        with pytest.raises(UserError, match=r"^'walk' has no features: .* as in walk<tab>V;PST"):
            read("walk")


@pytest.mark.parametrize("kind", ["char", "word", "label", "features"])
@pytest.mark.parametrize(
    "steps", [[], ["nfc"], ["nfd", "lowercase"], ["whitespace"], list(NORMALISERS)]
)
def test_units_are_what_hugging_faces_library_makes_of_the_file(
    kind: str, steps: list[str]
) -> None:
    """It is not needed to tokenize by units, and reads the same file."""
    import tokenizers

    tail = "\tV;PST" if kind == "features" else ""
    texts = [
        " aΣé e\u0301 İ?,\x1c",
        "a\u3000 b\t\n.c",
        "한글 \u1112\u1161\u11ab",
        "q\u0323\u0307",
        "<s>",
    ]
    texts = [
        text + tail for text in (*texts, *("".join(t) for t in itertools.combinations(texts, 2)))
    ]
    own = train_tokenizer(texts[::2], kind, None, steps)
    core = tokenizers.Tokenizer.from_str(own.to_json())
    core.encode_special_tokens = True
    assert core.to_str(pretty=True) + "\n" == own.to_json()
    for text in texts:
        found = core.encode(text, add_special_tokens=False)
        assert own.encode(text) == [max(i, UNK) for i in found.ids]
        decoded = core.decode(found.ids, skip_special_tokens=True)
        assert own.decode(found.ids) == (
            unicodedata.normalize("NFC", decoded) if own.composes else decoded
        )
        assert [token for token, *_ in own.spans(text)] == own.encode(text)


def test_a_token_has_the_span_of_the_characters_that_it_is_made_of() -> None:
    tokenizer = train_tokenizer(["éa 각"], "char", normalise=["whitespace", "nfc", "lowercase"])
    spans = tokenizer.spans("  E\u0301a \n\u1100\u1161\u11a8")
    assert [span for _, *span in spans] == [[2, 4], [4, 5], [5, 7], [7, 10]]
    parts = train_tokenizer(["각"], "char", normalise=["nfd"]).spans("a각")
    assert [span for _, *span in parts] == [[0, 1], *3 * [[1, 2]]]


def test_a_model_of_characters_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    loaded = Tokenizer.of_json(CHAR.to_json())
    assert loaded.encode("먹니") == CHAR.encode("먹니")
    with pytest.raises(UserError, match=r"need the package tokenizers: .* -m pip install "):
        Tokenizer.of_json(BPE.to_json())
