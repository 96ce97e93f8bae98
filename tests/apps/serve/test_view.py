"""The live page: its records are the library's, within limits, and a browser may ask for them."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.apps.serve.servers import PIPELINES, Running, answering, ask, running

from pellucid.apps import view
from pellucid.apps.serve import recorder
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import serve_model
from pellucid.apps.view.capture import frozen
from pellucid.apps.view.page import as_json, dumps
from pellucid.apps.view.record import select_cell
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.tasks.masked_lm import MASK

if TYPE_CHECKING:
    from playwright.sync_api import Page

PATH = "/view/record"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(Limits(view_tokens=40, view_answer=30)) as server:
        yield server


def test_a_model_that_writes_sounds_between_spaces_pronounces() -> None:
    letters, words = ["sun", "nut"], ["s ʌ n", "n ʌ t"]
    pair = train_tokenizer(letters, "char"), train_tokenizer(words, "word")
    assert serve_model("small", answering(SearchConfig(), tokenizers=pair)).use == "pronounce"


def test_a_model_of_words_that_writes_no_sounds_does_not_pronounce() -> None:
    letters = train_tokenizer(["sun", "nut"], "char"), train_tokenizer(["suns", "nuts"], "char")
    made = serve_model("small", answering(SearchConfig(), tokenizers=letters))
    assert made.use == "words"


def record(server: Running, model: str, text: str, **more: Any) -> Any:
    status, _, answer = ask(server, PATH, {"model": model, "text": text, **more})
    assert status == 200, answer
    return answer


def drawn(model: str, *texts: Any) -> Any:
    """Return a record as `pellucid view` writes it into its page."""
    return json.loads(dumps(as_json(view.attention(PIPELINES[model], *texts).record)))


def assert_equal(made: Any, expected: Any) -> None:
    """Compare records; log-probabilities in the trees may differ as between two compilations."""
    for one, other in zip(made.pop("tree"), expected.pop("tree"), strict=True):
        assert [x for x in one if not isinstance(x, float)] == [
            x for x in other if not isinstance(x, float)
        ]
        numbers = [[x for x in node if isinstance(x, float)] for node in (one, other)]
        np.testing.assert_allclose(*numbers, rtol=1e-5)
    assert made == expected


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("chat", "안녕하세요"),
        ("small-de-en", "der Hund"),
        ("story", "hello"),
        ("bert", f"a {MASK}"),
    ],
)
def test_a_record_is_the_one_of_pellucid_view(server: Running, model: str, text: str) -> None:
    assert_equal(record(server, model, text), drawn(model, text))


def test_a_record_is_of_the_search_and_the_answer_asked_for(server: Running) -> None:
    greedy, wide = (record(server, "small-de-en", "der Hund", beam=beam) for beam in (1, 5))
    assert len(wide["tree"]) > len(greedy["tree"])
    sampling = {"temperature": 2, "seed": 3}
    sampled = [record(server, "chat", "hello", **sampling) for _ in range(2)]
    assert_equal(dict(sampled[0]), dict(sampled[1]))
    assert sampled[0]["title"] != record(server, "chat", "hello", temperature=0)["title"]


def test_the_page_opens_where_asked(server: Running) -> None:
    opened = record(server, "chat", "hello", kind="encoder", layer=1, head=2, language="ko")
    assert (opened["opens"]["kind"], opened["opens"]["head"]) == ("encoder", 1)
    assert opened["language"] == "ko"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "chat"}, 400, "missing required field `text`"),
        ({"model": "none", "text": "a"}, 404, "there is no model"),
        ({"model": "chat", "text": "x" * 99}, 400, "text has 99 tokens, more than the 40"),
        ({"model": "chat", "text": "x", "answer": "y"}, 400, "contains unknown field `answer`"),
        ({"model": "chat", "text": ""}, 400, "the sentence is empty"),
        (
            {"model": "chat", "text": "x", "kind": "all"},
            400,
            "Invalid enum value 'all' - at `$.kind`",
        ),
        ({"model": "chat", "text": "x", "layer": 7}, 400, "no layer 7"),
        ({"model": "chat", "text": "x", "beam": 9}, 400, "Expected `int` <= 8 - at `$.beam`"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(
    server: Running, body: dict[str, Any], status: int, message: str
) -> None:
    got, _, answer = ask(server, PATH, body)
    assert got == status
    assert message in answer["error"]["message"]


def test_a_client_has_one_record_made_at_a_time(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, going = threading.Event(), threading.Event()
    made = recorder.make_record

    def slow(*arguments: Any) -> Any:
        begun.set()
        assert going.wait(20)
        return made(*arguments)

    monkeypatch.setattr(recorder, "make_record", slow)
    first: list[Any] = []
    asker = threading.Thread(target=lambda: first.append(record(server, "chat", "hello")))
    asker.start()
    try:
        assert begun.wait(20)
        status, headers, answer = ask(server, PATH, {"model": "chat", "text": "hello"})
        assert (status, headers["Retry-After"]) == (429, "1")
        assert "being made for you" in answer["error"]["message"]
        body = {"model": "chat", "prompt": "hello"}
        assert ask(server, "/v1/completions", body)[0] == 200  # answers do not wait for records
    finally:
        going.set()
        asker.join(20)
    assert first[0]["title"] == record(server, "chat", "hello")["title"]


def test_records_are_made_of_the_same_arrays_and_leave_the_model_as_it_is() -> None:
    model = PIPELINES["bert"].model
    for parameter, copied in zip(model.parameters(), frozen(model).parameters(), strict=True):
        assert parameter is not copied
        assert np.shares_memory(parameter.data, copied.data)


def live_of(page: str) -> Any:
    found = re.search('<script id="live" type="application/json">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_the_page_says_what_there_is_and_opens_on_an_example_or_a_text(server: Running) -> None:
    status, headers, page = ask(server, "/view")
    live = live_of(page)
    assert status == 200
    assert live["record_url"] == PATH
    kinds = {one["id"]: (one["kind"], one["languages"]) for one in live["models"]}
    assert kinds == {
        "chat": ("chat", None), "small-de-en": ("translate", ["de", "en"]),
        "story": ("continue", None), "bert": ("fill", None), "sounds": ("pronounce", None),
        "endless": ("chat", None),
    }  # fmt: skip
    assert live["opened"] == {"model": "chat", "text": live["models"][0]["example"]}
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    other = live_of(ask(server, "/view?model=small-de-en&text=%3Cb%3EHund")[2])
    assert other["opened"] == {"model": "small-de-en", "text": "<b>Hund"}
    long = live_of(ask(server, f"/view?text={'x' * 99}")[2])
    assert "text has 99 tokens" in long["error"]
    assert long["opened"] == live["opened"]
    assert ask(server, "/view?model=none")[0] == 404


def test_with_api_keys_a_browser_asks_its_user_for_one() -> None:
    with running(keys=("a key",)) as server:
        status, headers, _ = ask(server, "/view")
        assert (status, headers["WWW-Authenticate"][:5]) == (401, "Basic")
        for key, right in (("a key", 200), ("another", 401), ("", 401)):
            basic = base64.b64encode(f"anyone:{key}".encode()).decode()
            assert ask(server, "/view", Authorization=f"Basic {basic}")[0] == right
        for wrong in ("Basic", "Basic ####", "Basic /w==", "Basic YSBrZXk="):
            assert ask(server, "/view", Authorization=wrong)[0] == 401


def test_a_browser_opens_the_page_and_may_ask_for_a_record(
    server: Running, new_page: Callable[..., Page]
) -> None:
    page = new_page()
    page.goto(f"{server.url}/view?model=chat&text=hello")
    page.wait_for_function("pellucid.model.colours !== undefined")
    assert page.evaluate("pellucid.record.title") == record(server, "chat", "hello")["title"]
    asked = {"model": "small-de-en", "text": "der Hund", "beam": 2}
    script = """async body => {
        const { record_url } = JSON.parse(document.getElementById("live").textContent);
        const answer = await fetch(record_url, { method: "POST", body: JSON.stringify(body) });
        return (await answer.json()).title;
    }"""
    assert page.evaluate(script, asked) == record(server, **asked)["title"]


def test_the_cell_named_in_a_request_is_the_one_that_the_library_selects(server: Running) -> None:
    picture = view.attention(PIPELINES["chat"], "hello")
    cell = select_cell(picture.record, "cross", 1, 3)
    assert record(server, "chat", "hello", kind="cross", layer=1, head=3)["opens"] == cell._asdict()
