"""The application beyond its clients: limits, wrong requests, keys, hosts, logs, metrics."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from tests.apps.serve.servers import LETTERS, PIPELINES, Running, ask, filling, running

import openapi
from pellucid.apps.cli.serve import _keys
from pellucid.apps.serve import openai
from pellucid.apps.serve.app import OPENAPI
from pellucid.apps.serve.batcher import Batcher, Job
from pellucid.apps.serve.connection import Connection
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.service import Exchange
from pellucid.core.errors import UserError
from pellucid.data.tokenizers import train_tokenizer
from pellucid.generation import SearchConfig
from pellucid.tasks import Seq2SeqTask
from pellucid.tasks.generation import Opening
from pellucid.tasks.passage import Passage


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(Limits(body=2000, body_seconds=0.3, seconds=60, tokens=4000)) as server:
        yield server


def chat(text: str, model: str = "chat", **settings: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **settings}


def works(server: Running) -> bool:
    status, _, answer = ask(server, "/v1/chat/completions", chat("hello"))
    text = answer["choices"][0]["message"]["content"]
    return status == 200 and text == PIPELINES["chat"].generate(["hello"])[0]


def until(true: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


WRONG: list[tuple[Any, str]] = [
    (b"", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b'{"model": NaN}', "not JSON"),
    (b'{"model": "\\ud800"}', "not JSON"),
    (b'{"model": ' + b"[" * 1900, "not JSON"),
    ([1], "must be a JSON object"),
    ({}, "Object missing required field `model`"),
    (b'{"model": "\\ud800x"}', "not JSON"),
    ({"model": None, "messages": []}, "Object missing required field `model`"),
    ({"model": 5, "messages": []}, "Expected `str`, got `int` - at `$.model`"),
    (chat("a", n=0), "Expected `int` >= 1 - at `$.n`"),
    (chat("a", n=2), "n answers would be the same one: give a temperature"),
    (chat("a", n=True), "Expected `int`, got `bool` - at `$.n`"),
    (chat("a", max_tokens=10**30), "- at `$.max_tokens`"),
    (chat("a", temperature="hot"), "Expected `float | null`, got `str` - at `$.temperature`"),
    (chat("a", stop=[""]), "stop must hold"),
    (chat("a", stop=list("abcde")), "stop must hold at most 4 texts"),
    (chat("a", stop=5), "Expected `str | array`, got `int` - at `$.stop`"),
    (chat("a", stop=[5]), "Expected `str`, got `int` - at `$.stop[0]`"),
    (chat("a", logprobs=0), "Expected `bool`, got `int` - at `$.logprobs`"),
    (chat("a", top_logprobs=2), "top_logprobs needs logprobs: true"),
    (chat("a", logprobs=True, top_logprobs=21), "Expected `int` <= 20 - at `$.top_logprobs`"),
    (chat("a", best_of=True), "best_of is not supported"),
    (chat("a", tool_choice="required"), "tool_choice is not supported"),
    (chat("a", beam=2), "beam is not supported"),
    (chat("a", repetition_penalty=0.5), "Expected `float` >= 1"),
    ({"model": "chat", "messages": [5]}, "Expected `object`, got `int` - at `$.messages[0]`"),
    ({"model": "chat", "messages": []}, "messages must hold"),
    ({"model": "chat", "messages": [{"role": "user", "content": {}}]},
     "Expected `str | array | null`, got `object` - at `$.messages[0].content`"),
    ({"model": "chat", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     "content must be text"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_a_wrong_body_is_refused_by_name(server: Running, body: Any, message: str) -> None:
    status, _, answer = ask(server, "/v1/chat/completions", body)
    assert status == 400
    assert message in answer["error"]["message"]


def test_fields_that_ask_for_nothing_are_taken(server: Running) -> None:
    nothing = {"logprobs": False, "echo": None, "best_of": 1, "top_logprobs": 0}
    nothing |= {"frequency_penalty": 0.0, "presence_penalty": 0, "tools": []}
    assert ask(server, "/v1/chat/completions", chat("a", **nothing))[0] == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [(b"", None), ({}, "model"), (chat("a", n=0), "n"), (chat("a", stop=["a", 5]), "stop")],
)
def test_an_error_names_its_field(server: Running, body: Any, field: str | None) -> None:
    assert ask(server, "/v1/chat/completions", body)[2]["error"]["param"] == field


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/translate", "/v1/embeddings"])
def test_a_body_that_is_too_large_or_too_slow_is_refused(server: Running, path: str) -> None:
    assert ask(server, path, chat("x" * 3000))[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), 5) as slow:
        slow.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{{".encode()
        )
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    assert works(server)


def test_unknown_paths_and_methods_are_refused_in_the_format_of_the_path(server: Running) -> None:
    assert ask(server, "/v1/nothing")[2]["error"]["message"] == "there is no such path"
    status, _, answer = ask(server, "/translate")
    assert (status, answer) == (405, {"error": "this path has no such method"})


def test_a_client_that_hangs_up_stops_costing(server: Running) -> None:
    for stream in (False, True):
        before = server.service.worker.tokens
        body = json.dumps(chat("hello", "endless", max_tokens=4000, stream=stream)).encode()
        with socket.create_connection(("127.0.0.1", server.port), 5) as client:
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
            assert until(lambda: server.service.worker.running == 1)
        assert until(lambda: server.service.worker.running == 0)
        assert server.service.worker.tokens - before < 4000
    assert works(server)


@pytest.mark.parametrize("together", [True, False])
def test_a_client_that_hangs_up_with_a_request_waiting_stops_costing(
    server: Running, together: bool
) -> None:
    before = server.service.worker.tokens
    body = json.dumps(chat("hello", "endless", max_tokens=4000)).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    asked = head % len(body) + body
    with begun(server, asked * (1 + together)) as client:
        assert until(lambda: server.service.worker.running == 1)
        if not together:
            client.sendall(asked)
            assert until(
                lambda: any(one.pipeline for one in server.server.server_state.connections)
            )
    assert until(lambda: server.service.worker.running == 0)
    assert server.service.worker.tokens - before < 4000
    assert works(server)


def test_a_request_has_a_time_limit() -> None:
    with running(Limits(seconds=0.02, tokens=4000)) as server:
        status, _, answer = ask(server, "/v1/chat/completions", chat("hello", "endless"))
        assert status == 504
        assert "too long" in answer["error"]["message"]
        events = ask(server, "/v1/chat/completions", chat("hello", "endless", stream=True))[2]
        assert "too long" in events
        assert "[DONE]" not in events
        assert until(lambda: server.service.worker.running == 0)
        assert server.service.worker.tokens < 2 * 4000  # neither was written to its end


def test_a_full_queue_is_said_with_a_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    full, real = threading.Event(), Batcher.round

    def after_all_have_asked(self: Batcher) -> int:
        assert full.wait(60)
        return real(self)

    monkeypatch.setattr(Batcher, "round", after_all_have_asked)
    with running(Limits(waiting=2)) as server, ThreadPoolExecutor(1) as pool:
        two = (server, "/v1/chat/completions", chat("hello", n=2, temperature=1))
        first = pool.submit(ask, *two)
        assert until(lambda: server.service.worker.waiting == 2)
        status, headers, answer = ask(*two)
        full.set()
        assert first.result()[0] == 200
        assert (status, headers["Retry-After"]) == (429, "1")
        assert answer["error"]["type"] == "rate_limit_error"
        three = chat("hello", n=3, temperature=1)  # never: it is not worth trying again
        status, _, answer = ask(server, "/v1/chat/completions", three)
        assert (status, "expected 1 to 2 texts" in answer["error"]["message"]) == (400, True)
        assert until(lambda: server.service.worker.waiting == 0)
        assert works(server)


def test_api_keys() -> None:
    with running(keys=("first key", "second")) as server:
        assert ask(server, "/health")[0] == ask(server, "/ready")[0] == 200
        for headers in ({}, {"Authorization": "Bearer firs"}, {"Authorization": "second"}):
            status, _, answer = ask(server, "/v1/models", **headers)
            assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        for key in ("first key", "second"):
            assert ask(server, "/v1/models", Authorization=f"Bearer {key}")[0] == 200
        form = {"q": "der Hund", "source": "de", "target": "en", "api_key": "second"}
        for body, status in ((form, 200), ({**form, "api_key": "third"}, 401)):
            kind = {"Content-Type": "application/x-www-form-urlencoded"}
            assert ask(server, "/translate", urlencode(body).encode(), **kind)[0] == status


def test_a_body_in_parts_is_refused_by_its_name(server: Running) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    status, _, answer = ask(server, "/translate", b"--x--", **kind)
    assert status == 400
    assert answer["error"] == (
        "the body is multipart/form-data; send application/json or "
        "application/x-www-form-urlencoded"
    )


def test_a_form_may_hold_text_that_is_not_percent_encoded(server: Running) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}  # as curl -d sends it
    assert ask(server, "/translate", "q=Hündin&source=de&target=en".encode(), **kind)[0] == 200
    status, _, answer = ask(server, "/translate", b"q=\xff&source=de&target=en", **kind)
    assert (status, answer["error"]) == (400, "the body is not a form in UTF-8")


def test_another_host_name_is_refused_and_no_other_origin_is_let_in(server: Running) -> None:
    assert ask(server, "/v1/models", Host="evil.example")[0] == 421
    _, headers, _ = ask(server, "/v1/models", Origin="https://evil.example")
    assert not [name for name in headers if name.lower().startswith("access-control")]


def test_a_failure_of_the_server_is_logged_without_the_text(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("while answering 비밀")

    caplog.set_level(logging.INFO, "pellucid")
    # the command `serve`, where an earlier test ran it here, sends these lines elsewhere
    monkeypatch.setattr(logging.getLogger("pellucid.apps.serve"), "propagate", True)
    with monkeypatch.context() as patch:
        patch.setattr(server.service.models["chat"].batchers[0].decoder, "room", fail)
        status, _, answer = ask(server, "/v1/chat/completions", chat("비밀"))
        assert status == 500
        events = ask(server, "/v1/chat/completions", chat("비밀", stream=True))[2]
        assert "the model failed" in events
    ask(server, "/v1/chat/completions?q=%EB%B9%84", chat("비밀"))
    assert "비밀" not in caplog.text + str(answer) + events
    assert caplog.text.count("RuntimeError at test_app.py") == 2
    assert "%EB" not in caplog.text
    assert until(lambda: sum('"tokens"' in r.message for r in caplog.records) == 3)
    record = [json.loads(r.message) for r in caplog.records if '"tokens"' in r.message][-1]
    assert (record["path"], record["status"]) == ("/v1/chat/completions", 200)
    assert record["tokens"] == len(PIPELINES["chat"].generate_answers(["비밀"])[0][0].tokens)
    assert works(server)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [
        ({"temperature": 0}, {"beam": 1}),
        ({"temperature": 0, "top_k": 3, "seed": 5}, {"beam": 1}),
        ({"max_tokens": 4}, {"max_length": 4}),
        ({"max_completion_tokens": 3, "max_tokens": 9}, {"max_length": 3}),
        ({"top_k": 3, "seed": 5}, {"top_k": 3, "seed": 5}),
        ({"min_p": 0.5, "seed": 5}, {"min_p": 0.5, "seed": 5}),
        ({"top_p": 0.3, "seed": 5}, {"top_p": 0.3, "seed": 5}),
    ],
)
def test_a_requests_settings_are_those_of_its_answer(
    server: Running, asked: dict[str, Any], settings: dict[str, Any]
) -> None:
    pipeline = PIPELINES["small-de-en"]
    (right,) = pipeline.generate_answers(["der Hund"], **settings)[0]
    bare = {"seed": 5} if "seed" in settings else {}
    assert right != pipeline.generate_answers(["der Hund"], **bare)[0][0]  # it makes a difference
    for path, body in (
        ("/v1/chat/completions", chat("der Hund", "small-de-en", **asked)),
        ("/v1/completions", {"model": "small-de-en", "prompt": "der Hund", **asked}),
    ):
        status, _, answer = ask(server, path, body)
        (choice,) = answer["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert (status, text) == (200, right.text), path
        assert answer["usage"]["completion_tokens"] == len(right.tokens)


def test_what_a_model_never_saw_is_in_every_response(server: Running) -> None:
    body = {"model": "sounds", "prompt": "transpaж"}
    assert ask(server, "/v1/completions", body)[2]["unknown"] == ["ж"]
    body = {"model": "sounds", "prompt": ["pa", "transpaж"]}
    assert ask(server, "/v1/completions", body)[2]["unknown"] == [[], ["ж"]]
    assert ask(server, "/v1/chat/completions", chat("transpaж", "sounds"))[2]["unknown"] == ["ж"]
    assert "unknown" not in ask(server, "/v1/chat/completions", chat("pa", "sounds"))[2]
    status, _, answer = ask(server, "/v1/chat/completions", chat("paжж", "sounds"))
    assert (status, "half of it, or more" in answer["error"]["message"]) == (400, True)


def test_what_an_encoder_never_saw_is_in_the_responses_of_its_endpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PIPELINES, "letters", filling(LETTERS[0]))
    with running() as server:
        body: Any = {"model": "letters", "input": "transpaж"}
        assert ask(server, "/v1/embeddings", body)[2]["unknown"] == ["ж"]
        body["input"] = ["transpaжж", "pa", "жant"]
        status, _, answer = ask(server, "/v1/embeddings", body)
        assert (status, answer["unknown"]) == (200, [["ж"], [], ["ж"]])
        assert len(answer["data"]) == 3
        assert "unknown" not in ask(server, "/v1/embeddings", body | {"input": ["pa", ""]})[2]
        status, _, answer = ask(server, "/v1/embeddings", body | {"input": ["pa", "жжp"]})
        assert (status, "half of it, or more" in answer["error"]["message"]) == (400, True)
        for text, unknown in (("tra[MASK]spaж", ["ж"]), ("tra[MASK]spa", None), ("[MASK]a", None)):
            status, _, answer = ask(server, "/fill", {"model": "letters", "text": text})
            assert (status, answer.get("unknown")) == (200, unknown), text
        status, _, answer = ask(server, "/fill", {"model": "letters", "text": "ж[MASK]ж"})
        assert (status, "half of it, or more" in answer["error"]["message"]) == (400, True)


def test_several_texts_and_long_texts_are_translated(server: Running) -> None:
    texts = ["der Hund", "hello", ""]
    right = PIPELINES["small-de-en"].generate(texts)
    asked = {"source": "de", "target": "en"}
    assert ask(server, "/translate", {**asked, "q": texts})[2] == {"translatedText": right}
    sentence = "der Hund, der Hund, hello there."
    long = " ".join([sentence] * 9)
    pieces = PIPELINES["small-de-en"].passage(long).pieces
    assert len(pieces) > 1
    answer = ask(server, "/translate", {**asked, "q": long})[2]["translatedText"]
    assert answer == " ".join(PIPELINES["small-de-en"].generate(pieces))
    status, _, answer = ask(server, "/translate", {**asked, "q": "x" * 999})
    assert (status, "999 tokens, more than the" in answer["error"]) == (400, True)


def test_a_text_of_more_pieces_than_may_wait_is_translated() -> None:
    pipeline = PIPELINES["small-de-en"]
    long = " ".join(["der Hund, der Hund, hello there."] * 40)
    pieces = pipeline.passage(long).pieces
    with running(Limits(waiting=2)) as server:
        assert len(pieces) > 2 * server.service.limits.waiting
        body = {"q": long, "source": "de", "target": "en"}
        status, _, answer = ask(server, "/translate", body)
    assert (status, answer) == (200, {"translatedText": " ".join(pipeline.generate(pieces))})


def test_others_are_answered_while_a_long_text_is_split(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    splitting, ended, real = threading.Event(), threading.Event(), Seq2SeqTask.passage

    def slow(self: Seq2SeqTask, text: str) -> list[str]:
        splitting.set()
        assert ended.wait(60)
        return real(self, text)

    monkeypatch.setattr(Seq2SeqTask, "passage", slow)
    server.service.limits = replace(server.service.limits, body=10_000)
    body = {"q": "der Hund. " * 300, "source": "de", "target": "en"}
    with ThreadPoolExecutor(1) as pool:
        translated = pool.submit(ask, server, "/translate", body)
        assert splitting.wait(60)
        assert ask(server, "/health")[0] == 200
        ended.set()
        assert translated.result()[0] == 200
    server.service.limits = replace(server.service.limits, body=2000)


def test_a_source_is_detected_among_those_that_can_be_translated(server: Running) -> None:
    served = server.service.models["small-de-en"]
    french = replace(served, languages=("fr", "it"))
    server.service.models = {**server.service.models, "fr-it": french}
    for text in ("12345", "Salut"):
        answer = ask(server, "/translate", {"q": text, "source": "auto", "target": "it"})
        assert (answer[0], answer[2]["detectedLanguage"]["language"]) == (200, "fr")


def test_a_letter_that_joins_the_prompts_last_one_is_sent(server: Running) -> None:
    served = server.service.models["story"]
    letters = train_tokenizer(["안녕하세요"], "char", None, ("nfd",))
    task = replace(served.pipeline, source=letters, target=letters)
    source, answer = letters.encode("안녀"), letters.encode("안녕")[len(letters.encode("안녀")) :]
    text = replace(served, pipeline=task).text(Opening(source, None, "안녀"), answer)
    assert unicodedata.normalize("NFC", "안녀" + text) == "안녕"


def test_a_stop_text_ends_an_answer_at_one_token_whatever_came_after_it(server: Running) -> None:
    served = server.service.models["sounds"]
    tokens = served.pipeline.target.encode("tɹænspəɹənt")
    seen = Counter[tuple[str, int]]()
    for n in range(1, len(tokens) + 1):
        job = Job((), SearchConfig(), each=True, answer=tokens[:n], done=n == len(tokens))
        read = Passage(["x"], ["", ""]), [served.pipeline.opening("x")], [job]
        one = openai.Answer(served, *read, ["nspəɹ", "sp"])  # the first begins before, ends later
        new, _ = one.more()
        if one.stopped:
            seen[new, openai._usage([one], 1)["completion_tokens"]] += 1
    assert seen == {("tɹæn", 6): 6}


def test_keys_are_read_from_a_file_of_windows(tmp_path: Path) -> None:
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbffirst\r\nsecond\r\n")
    assert _keys(tmp_path / "keys") == ["first", "second"]
    (tmp_path / "keys").write_text("열쇠\n", encoding="utf-8")
    with pytest.raises(UserError, match="use ASCII"):
        _keys(tmp_path / "keys")


def test_metrics_count_requests_and_tokens(server: Running) -> None:
    def count(name: str) -> float:
        page = ask(server, "/metrics")[2]
        found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else 0.0

    path = "/v1/chat/completions"
    names = (
        f'pellucid_requests_total{{path="{path}",status="200"}}',
        f'pellucid_request_seconds_count{{path="{path}"}}',
        f'pellucid_first_token_seconds_count{{path="{path}"}}',
        "pellucid_generated_tokens_total",
    )
    before = [count(name) for name in names]
    ask(server, path, chat("hello", stream=True))
    after = [count(name) for name in names]
    tokens = len(PIPELINES["chat"].generate_answers(["hello"])[0][0].tokens)
    assert [b - a for a, b in zip(before[:3], after[:3], strict=True)] == [1, 1, 1]
    assert after[3] - before[3] >= tokens


def test_the_openapi_document_lists_every_path(server: Running) -> None:
    status, _, document = ask(server, "/openapi.json")
    assert status == 200
    assert {"/v1/chat/completions", "/translate", "/metrics"} <= document["paths"].keys()
    chat_body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    reference = chat_body["content"]["application/json"]["schema"]["$ref"]
    schema = document["components"]["schemas"][reference.removeprefix("#/components/schemas/")]
    assert schema["required"] == ["model", "messages"]
    assert schema["properties"]["temperature"]["anyOf"][0]["maximum"] == 2
    assert all("description" in field for field in schema["properties"].values())


@pytest.mark.parametrize(
    ("accepted", "path", "body", "message"),
    [
        ("ko-KR,ko;q=0.9,en;q=0.8", "/nothing", None, "그런 경로가 없습니다"),
        ("ko", "/translate", {"q": [""] * 65, "source": "de", "target": "en"},
         "q에는 텍스트를 64개까지 넣을 수 있습니다"),
        ("ko", "/fill", {"model": "bert", "text": "a b"}, "[MASK]"),
        ("en, ko;q=0.5", "/nothing", None, "there is no such path"),
        ("fr", "/nothing", None, "there is no such path"),
    ],
)  # fmt: skip
def test_an_error_is_in_the_language_that_the_request_accepts(
    server: Running, accepted: str, path: str, body: Any, message: str
) -> None:
    _, _, answer = ask(server, path, body, **{"Accept-Language": accepted})
    said = answer["error"] if path == "/translate" else answer["error"]["message"]
    assert message in said
    assert bool(re.search("[가-힣]", said)) == accepted.startswith("ko")


def test_a_long_error_stays_english(server: Running) -> None:
    request = Request({"type": "http", "headers": [(b"accept-language", b"ko")]})
    exchange = Exchange(server.service, request, began=0.0)
    error = "half of it, or more, was not seen in training: "
    assert exchange.said(error + "q") == "절반 이상이 학습에 없던 문자입니다: q"
    assert exchange.said(error + "q" * 1000) == error + "q" * 1000


def test_every_path_has_an_example_that_works_and_the_errors_it_can_give(server: Running) -> None:
    models = ask(server, "/v1/models")[2]["data"]
    paths = ask(server, "/openapi.json")[2]["paths"]
    for path, methods in paths.items():
        ((method, one),) = methods.items()
        model = next((m for m in models if m["use"] in one.get("x-use", [m["use"]])), None)
        if model is None:  # one that labels, which test_labels serves
            assert path == "/models/{name}"
            continue
        source, target = model["languages"] or ("de", "en")
        put = {
            "NAME": model["id"],
            "TEXT": model["examples"][0],
            "SOURCE": source,
            "TARGET": target,
        }
        body = None
        if method == "post":
            example = json.dumps(one["requestBody"]["content"]["application/json"]["example"])
            for mark, value in put.items():
                example = example.replace(f'"{mark}"', json.dumps(value))
            body = json.loads(example)
        status, _, answered = ask(server, path.replace("{name}", put["NAME"]), body)
        assert status == 200, (path, answered)
    given = {path: set(next(iter(one.values()))["responses"]) for path, one in paths.items()}
    assert given["/health"] == {"200"}
    assert given["/v1/models"] == {"200", "401"}
    assert given["/fill"] == {"200", "400", "401", "404", "408", "413", "429", "504"}


def test_the_openapi_document_is_of_these_endpoints() -> None:
    assert OPENAPI.read_text(encoding="utf-8") == openapi.written(), "run scripts/openapi.py"


def test_the_models_say_what_they_are_and_have_texts_to_try(server: Running) -> None:
    models = {one["id"]: one for one in ask(server, "/v1/models")[2]["data"]}
    assert all(one["about"] for one in models.values())
    assert models["sounds"]["examples"] == ["transparent"]


def begun(server: Running, sent: bytes = b"") -> socket.socket:
    """Open a connection and send some bytes."""
    opened = socket.create_connection(("127.0.0.1", server.port), 20)
    opened.sendall(sent)
    return opened


def rest(opened: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    received = b""
    with opened:
        try:
            while part := opened.recv(65536):
                received += part
        except ConnectionError:
            pass
    return received


GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
FORM = b"application/x-www-form-urlencoded"


def test_headers_that_come_too_slowly_or_never_end_close_the_connection() -> None:
    with running(Limits(head_seconds=0.3)) as server:
        assert rest(begun(server)) == b""
        assert rest(begun(server, GET)) == b""
        assert rest(begun(server, GET + b"\r\n" + GET)).startswith(b"HTTP/1.1 200")
    with running(Limits(head=2000)) as server:
        assert rest(begun(server, GET + b"X: " + b"y" * 3000)) == b""
        assert works(server)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_request_to_upgrade_is_read_as_any_other(server: Running, framing: str) -> None:
    body = GET + b"\r\n"  # what would be taken for another request
    long, written = b"Content-Length: %d\r\n" % len(body), body
    if framing == "chunked":
        long, written = (
            b"Transfer-Encoding: chunked\r\n",
            b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body),
        )
    asked = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n" % (asked, long)
    last = GET + b"Connection: close\r\n\r\n"
    for parts in (
        (head + written, last),
        (head, written, last),
        (head[:99], head[99:] + written + last),
    ):
        opened = begun(server)
        for part in parts:
            opened.sendall(part)
            time.sleep(0.05)
        received = rest(opened)
        assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"400", b"200"]
        assert b"not JSON" in received
    form = b"q=der+Hund&source=de&target=en"
    head = head.replace(long, b"Content-Length: %d\r\nContent-Type: %s\r\n" % (len(form), FORM))
    received = rest(begun(server, head + form + last))
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"200"]
    assert b"translatedText" in received


def test_no_byte_after_a_request_to_connect_is_read(server: Running) -> None:
    for there in (b"/health", b"localhost:80"):
        sent = GET.replace(b"GET /health", b"CONNECT " + there) + b"\r\n" + GET + b"\r\n"
        assert re.findall(rb"HTTP/1.1 (\d+)", rest(begun(server, sent))) == [b"400"]


def test_a_request_has_one_host(server: Running) -> None:
    for lines in (b"Host: localhost\r\n" * 2, b"", b"Host: evil.example\r\nHost: localhost\r\n"):
        sent = b"GET /health HTTP/1.1\r\nConnection: close\r\n" + lines + b"\r\n"
        received = rest(begun(server, sent))
        assert received.startswith(b"HTTP/1.1 400")
        assert b"a request has one Host header" in received


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://127.0.0.1", 403), ("own", 200)],
)
def test_a_browser_that_names_only_the_origin_is_believed(
    server: Running, origin: str, status: int
) -> None:
    headers = {"Origin": server.url if origin == "own" else origin, "Content-Type": "text/plain"}
    assert ask(server, "/v1/chat/completions", chat("hello"), **headers)[0] == status


def test_no_browser_guesses_the_type_of_an_answer(server: Running) -> None:
    for path in ("/health", "/view", "/nothing"):
        assert ask(server, path)[1]["X-Content-Type-Options"] == "nosniff"
    assert b"x-content-type-options: nosniff\r\n" in rest(begun(server, b"nonsense\r\n\r\n"))


def test_a_client_that_sent_too_much_can_read_why(server: Running) -> None:
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n"
    received = rest(begun(server, head + b" " * 15_000_000))
    assert received.startswith(b"HTTP/1.1 413")
    assert b"the body has more than 2000 bytes" in received


def test_a_client_that_does_not_read_its_answers_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = threading.Event()
    forget = Connection.connection_lost

    def noted(connection: Connection, error: Exception | None) -> None:
        forget(connection, error)
        lost.set()

    monkeypatch.setattr(Connection, "connection_lost", noted)
    with running(Limits(seconds=0.1, body_seconds=0.1, read_seconds=0.1)) as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall((GET.replace(b"/health", b"/openapi.json") + b"\r\n") * 1000)
            assert lost.wait(20)
        assert works(server)


def test_a_page_of_another_site_may_look_but_not_ask(server: Running) -> None:
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200)):
        headers = {"Sec-Fetch-Site": site}
        assert ask(server, "/v1/chat/completions", chat("hello"), **headers)[0] == status
        assert ask(server, "/view", **headers)[0] == 200  # as when a link is followed


def test_head_is_answered_without_a_body(server: Running) -> None:
    answered = rest(begun(server, b"HEAD" + GET[3:] + b"Connection: close\r\n\r\n"))
    head, _, body = answered.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body == b""


def test_the_model_that_is_named_translates(server: Running) -> None:
    served = server.service.models["small-de-en"]
    other = replace(served, pipeline=served.pipeline.configured(max_length=1))
    before = server.service.models
    server.service.models = {**before, "other-de-en": other}
    body = {"q": "der Hund", "source": "de", "target": "en"}
    try:
        plain, own, named = (
            ask(server, "/translate", {**body, **more})[2]["translatedText"]
            for more in ({}, {"model": "small-de-en"}, {"model": "other-de-en"})
        )
        assert plain == own != named
        status, _, answer = ask(server, "/translate", {**body, "model": "story"})
        assert (status, answer["error"]) == (400, "no model story translates de to en")
    finally:
        server.service.models = before
