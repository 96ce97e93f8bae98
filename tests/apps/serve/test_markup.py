"""HTML in pieces: texts are answered, and tags stay as they are, to the letter."""

from __future__ import annotations

import html
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apps.serve.servers import LETTERS, PIPELINES, Running, answering, ask, running

from pellucid.apps.serve.markup import escaped, passage_of, shown
from pellucid.core.errors import UserError
from pellucid.generation import SearchConfig
from pellucid.tasks.generation import TooLongError
from pellucid.tasks.passage import Passage, sentences


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def split(text: str) -> Passage:
    return Passage.of(sentences(text), lambda part: "?" not in part)


DOCUMENT = """<!DOCTYPE html>\n<P class='a b' >Ab. Cd &amp; &#x65;f.</P >
<!-- no <b> --><br/><script>var a = "<b>no</b>";</script><style>p { no }</style>
gh <code class="x" title="no &amp; no"
>j</code>
<img alt="no"><?no ?><![CDATA[no]]>a &lt; b<div>? <b>un</div>closed"""


def test_only_texts_between_tags_are_pieces() -> None:
    found = passage_of(DOCUMENT, split)
    assert found.pieces == ["Ab.", "Cd & ef.", "gh", "j", "a < b", "un", "closed"]
    assert " ".join(shown(DOCUMENT).split()) == "Ab. Cd & ef. gh j a < b ? un closed"
    loud = found.joined([escaped(piece.upper()) for piece in found.pieces])
    for before, after in [
        ("Ab. Cd &amp; &#x65;f.", "AB. CD &amp; EF."), ("gh ", "GH "), (">j<", ">J<"),
        ("a &lt; b", "A &lt; B"), ("un<", "UN<"), ("closed", "CLOSED"),
    ]:  # fmt: skip
        assert loud.count(after) == 1
        loud = loud.replace(after, before)
    assert loud == DOCUMENT


@pytest.mark.parametrize(
    ("document", "pieces"),
    [
        ('<p translate="no">a <b>b</b></p>c', ["c"]),
        ("<i class='x notranslate'>a<i>b</i>c</i>d<i class=notranslates>e", ["d", "e"]),
        ("<DIV TRANSLATE=NO>a<div translate=yes>b</div>c</DIV>d", ["d"]),
        ('<br translate="no">a<img class=notranslate />b', ["a", "b"]),
        ("<p translate=no>a<p>b</p></p>c", ["b", "c"]),
        ("<b translate>a</b><b translate=''>b</b></b><u translate=no>c", ["a", "b"]),
    ],
)
def test_what_is_marked_is_not_translated(document: str, pieces: list[str]) -> None:
    found = passage_of(document, split)
    assert found.pieces == pieces
    assert found.joined(pieces) == document


def test_a_text_that_cannot_be_read_is_kept_unless_it_is_too_long() -> None:
    def refused(text: str) -> Passage:
        raise UserError("not seen in training") if text == "&" else TooLongError("too long")

    assert passage_of("<p> &amp; </p>", refused) == ([], ["<p> &amp; </p>"])
    with pytest.raises(TooLongError):
        passage_of("<p>a</p>", refused)


@given(st.text("<>/!-?&;#abp= \"'\n\r", max_size=31) | st.text(max_size=13))
def test_no_character_of_a_document_is_lost(document: str) -> None:
    found = passage_of(document, lambda text: Passage([text], ["", ""]))
    same = found.joined([escaped(piece) for piece in found.pieces])
    assert html.unescape(same) == html.unescape(document)


def test_many_open_elements_take_no_longer_than_their_number() -> None:
    assert shown("<b>" * 50_000 + "a" + "</i>" * 50_000) == "a"


def test_html_is_translated_tag_by_tag(server: Running) -> None:
    task = PIPELINES["small-de-en"]
    one, two = (escaped(text) for text in task.generate(["der Hund.", "hello"]))
    document = '<p title="der Hund">der Hund. <b>hello</b></p>\n'
    body = {"q": document, "source": "de", "target": "en", "format": "html"}
    status, _, answer = ask(server, "/translate", body)
    assert status == 200
    assert answer["translatedText"] == f'<p title="der Hund">{one} <b>{two}</b></p>\n'
    auto = ask(server, "/translate", body | {"q": [document, "<br>"], "source": "auto"})[2]
    assert auto["translatedText"] == [answer["translatedText"], "<br>"]
    assert ask(server, "/translate", body | {"format": "xml"})[0] == 400


def test_a_part_that_was_never_seen_stays_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    task = answering(SearchConfig(max_length=9), tokenizers=LETTERS)
    monkeypatch.setitem(PIPELINES, "letters-ko-ru", task)
    body = {"q": "<p>жж</p><b>hello</b> <i>жells</i>", "source": "ko", "target": "ru"}
    with running() as server:
        status, _, answer = ask(server, "/translate", body | {"format": "html"})
        one, two = (escaped(text) for text in task.generate(["hello", "жells"]))
        assert (status, answer["unknown"]) == (200, ["ж"])
        assert answer["translatedText"] == f"<p>жж</p><b>{one}</b> <i>{two}</i>"
        body["q"] = "<p translate=no>жж</p> <b>hello</b>"
        answer = ask(server, "/translate", body | {"format": "html"})[2]
        assert answer == {"translatedText": f"<p translate=no>жж</p> <b>{one}</b>"}
