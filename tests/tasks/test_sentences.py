"""A text is answered sentence by sentence, and what is between them is kept."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pellucid
from pellucid.core.errors import UserError
from pellucid.data.pairs import TextPair
from pellucid.tasks.folder import shipped_models
from pellucid.tasks.passage import Passage, columns_of, lines, sentences, sentences_together


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One two. Three.", ["One two.", " Three."]),
        ('He said "no." Then, yes!  So?', ['He said "no."', " Then, yes!", "  So?"]),
        ("(It rains.) Really?! Yes…", ["(It rains.)", " Really?!", " Yes…"]),
        ("今日は。「明日は？」はい！", ["今日は。", "「明日は？」", "はい！"]),
        ("안녕? 반가워.", ["안녕?", " 반가워."]),
        ("3.14 and 2.71. Yes.", ["3.14 and 2.71.", " Yes."]),
        ("Dr. No und z. B. A. Bell kamen am 3. Mai. Ja.", None),
        ("no end in sight", ["no end in sight"]),
    ],
)
def test_a_line_is_split_where_sentences_end(text: str, parts: list[str] | None) -> None:
    assert sentences(text) == (parts or [text.removesuffix(" Ja."), " Ja."])


@given(st.text("ab.!? \n。”", max_size=29))
def test_nothing_is_lost(text: str) -> None:
    parts = [part for line in lines(text) for part in sentences(line)]
    assert "".join(parts) == text
    found = Passage.of(parts)
    if text.strip() == text:
        assert "".join(found.joined(found.pieces).split()) == "".join(text.split())


def test_lines_and_white_space_alone_come_back() -> None:
    text = "\nab. bc.\r\n\n\tcd.\n"
    found = Passage.of([part for line in lines(text) for part in sentences(line)])
    assert found.pieces == ["ab.", "bc.", "cd."]
    assert found.joined(["A", "B", "C"]) == "\nA B\r\n\n\tC\n"
    assert Passage.of([" \n "]) == ([], [" \n "])


def test_what_nobody_sees_at_the_edge_of_a_word_is_not_kept() -> None:
    trained = pellucid.load("g2p-en")
    (plain,) = trained.generate(["new word"])
    assert trained.generate(["\ufeffnew\u200b \u2060word\u00ad"]) == [plain]
    assert trained.generate(["new word \u2764\ufe0f"]) == [f"{plain} \u2764\ufe0f"]


def test_as_many_sentences_go_together_as_the_training_sources_had() -> None:
    assert sentences_together(["A b."] * 40 + ["Ab. Cd."]) == 1
    assert sentences_together(["A b."] * 4 + ["Ab. Cd. Ef."]) == 3
    rare = ["Ab. Cd. Ef.", "Ab. Cd."]
    assert sentences_together([*rare, *["A b."] * 37]) == 2
    assert sentences_together([*rare, *["A b."] * 39]) == 1
    assert sentences_together(["", " "]) == sentences_together([]) == 1
    trained = replace(pellucid.load("chat-ko"), sentences=2)
    assert trained.passage("안녕? 뭐해? 잘가.").pieces == ["안녕? 뭐해?", "잘가."]
    assert replace(trained, sentences=None).passage("안녕? 뭐해?\n자.").pieces == [
        "안녕? 뭐해?\n자."
    ]


def test_a_model_of_columns_reads_rows_and_refuses_a_text_without_its_columns() -> None:
    assert columns_of(["a\tN", "b. c\tV"]) == 2
    assert columns_of(["a\tN", "b"]) == columns_of([]) == 1
    trained = replace(pellucid.load("chat-ko"), columns=2)
    found = trained.passage("안녕? 뭐해?\t안녕\n잘가\t그래\n")
    assert found == (["안녕? 뭐해?\t안녕", "잘가\t그래"], ["", "\n", "\n"])
    for text, count in (("안녕? 뭐해?", 1), ("안녕\t뭐해\n잘가", 1), ("안녕\t뭐해\t잘가", 3)):
        with pytest.raises(UserError, match=rf"expected 2 columns .* has {count}"):
            trained.passage(text)


def test_a_model_of_words_keeps_marks_and_names_what_it_cannot_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trained = pellucid.load("g2p-en")
    one = dict(zip("abc", trained.generate(["cat", "it's", "well"]), strict=True))
    assert not caplog.messages
    trained.generate(["7 cats", "well, жat", "it 7"])
    assert caplog.messages == ["not seen in training: '7' 'ж'"]
    found = trained.generate(["“Cat,” \u00a0it\u2019s\nWELL-cat! ", "...", " ", "7 cat"])
    text = f"“{one['a']},” \u00a0{one['b']}\n{one['c']}-{one['a']}!"
    assert found == [text, "...", " ", f"7 {one['a']}"]
    assert trained.unread("7 cats, жук!") == ["7", "ж", "к", "у"]
    for text in ("ж", "ab ж7", "ж!"):
        with pytest.raises(UserError, match=r"^half of it, or more, .*: .*'ж'"):
            trained.generate([text])
    scores = trained.evaluate(
        [TextPair("cat", (one["a"],)), TextPair("жук", ("x",))],
        "error_rates", max_tokens=9, batch_tokens=64,
    )  # fmt: skip
    assert scores.written()["WER"].startswith("50.00%")


def test_answers_and_streams_are_of_whole_texts() -> None:
    trained = pellucid.load("chat-ko")
    one, two = (answers[0] for answers in trained.generate_answers(["안녕?", "잘 자."]))
    text = "안녕? 잘 자.\n\n안녕?\n"
    whole = f"{one.text} {two.text}\n\n{one.text}\n"
    ((found,),) = trained.generate_answers([text])
    assert found.text == whole == trained.generate([text])[0] == "".join(trained.stream(text))
    assert found.log_p == pytest.approx(2 * one.log_p + two.log_p)
    assert (found.finished, found.tokens) == (True, ())
    ((kept,),) = trained.generate_answers(["\n안녕?\n"])
    assert kept == one._replace(text=f"\n{one.text}\n")
    assert trained.generate_answers(["\n"])[0][0].text == "\n"
    several = [answer.text for answer in trained.generate_answers([text], beam=4, best=3)[0]]
    assert len(set(several)) == 3
    draws = {"temperature": 1.0, "seed": 2}
    (drawn,) = trained.generate([text], **draws)
    assert drawn.count("\n") == 3
    assert "".join(trained.stream(text, **draws)) == drawn


def test_a_shipped_model_records_how_many_sentences_its_sources_had() -> None:
    for name, folder in shipped_models().items():
        record = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert record.get("sentences") == (None if name == "topics-ko" else 1)
