"""A text of several sentences and lines on /v1: whole, streamed, stopped, with its scores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.apps.serve.servers import PIPELINES, Running, ask, running

from pellucid.apps.serve.limits import Limits

PATHS = ["/v1/chat/completions", "/v1/completions"]
TEXT = "\nhello there. der Hund!\n\n  안녕하세요\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(Limits(texts=2, waiting=2)) as server:  # fewer than there are pieces
        yield server


def body(path: str, text: str = TEXT, **more: Any) -> dict[str, Any]:
    asked: Any = {"messages": [{"role": "user", "content": text}]}
    return {"model": "chat", **(asked if "chat" in path else {"prompt": text}), **more}


def answered(server: Running, path: str, **more: Any) -> tuple[str, Any]:
    status, _, answer = ask(server, path, body(path, **more))
    assert status == 200, answer
    (choice,) = answer["choices"]
    return choice.get("text") or choice["message"]["content"], answer


def streamed(server: Running, path: str, **more: Any) -> tuple[str, list[Any]]:
    data = json.dumps(body(path, stream=True, **more)).encode()
    request = Request(server.url + path, data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        lines = [x[6:] for x in response.read().decode().split("\n") if x.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    events = [json.loads(line)["choices"][0] for line in lines]
    return "".join(e.get("text") or e.get("delta", {}).get("content", "") for e in events), events


@pytest.mark.parametrize("path", PATHS)
def test_sentences_and_lines_are_answered_one_by_one(server: Running, path: str) -> None:
    (right,) = PIPELINES["chat"].generate([TEXT])
    assert right.count("\n") >= 4  # those of the text, and what a random model writes
    text, answer = answered(server, path)
    assert text == right
    found, events = streamed(server, path)
    assert found == right
    assert events[-1]["finish_reason"] == answer["choices"][0]["finish_reason"]
    tokens = [
        len(PIPELINES["chat"].source.encode(one))
        for one in ("hello there.", "der Hund!", "안녕하세요")
    ]
    assert answer["usage"]["prompt_tokens"] == sum(tokens)


@pytest.mark.parametrize("path", PATHS)
def test_a_passage_is_drawn_as_generate_draws_it(server: Running, path: str) -> None:
    draws = {"temperature": 1.0, "seed": 5}
    (right,) = PIPELINES["chat"].generate([TEXT], **draws)
    assert answered(server, path, **draws)[0] == streamed(server, path, **draws)[0] == right


@pytest.mark.parametrize("path", PATHS)
def test_a_stop_text_ends_a_passage_in_any_piece(server: Running, path: str) -> None:
    (right,) = PIPELINES["chat"].generate([TEXT])
    for stop in ("\n\n  ", right[-6:-2], right[3:5]):
        cut = right[: right.index(stop)]
        text, answer = answered(server, path, stop=stop)
        found, events = streamed(server, path, stop=stop)
        assert text == found == cut
        assert events[-1]["finish_reason"] == answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", PATHS)
def test_log_probabilities_are_those_of_all_pieces(server: Running, path: str) -> None:
    chat = "chat" in path
    _, answer = answered(server, path, logprobs=True)
    found = answer["choices"][0]["logprobs"]
    alone = [
        answered(server, path, text=piece, logprobs=True)[1]["choices"][0]["logprobs"]
        for piece in ("hello there.", "der Hund!", "안녕하세요")
    ]
    if chat:
        assert found["content"] == [one for some in alone for one in some["content"]]
        return
    assert found["tokens"] == [one for some in alone for one in some["tokens"]]
    assert found["text_offset"] == sorted(found["text_offset"])
    assert found["text_offset"][0] == 1  # behind the first line break


def test_a_sentence_that_is_too_long_is_named(server: Running) -> None:
    status, _, answer = ask(server, PATHS[0], body(PATHS[0], "hello. " + "x" * 99))
    assert status == 400
    assert (
        answer["error"]["message"]
        == "99 tokens, more than the 64 that this model can read; split it"
    )
    assert ask(server, PATHS[0], body(PATHS[0], "hello there. " * 40))[0] == 200


def test_a_prompt_that_ends_inside_a_token_is_continued_as_generate_does(server: Running) -> None:
    task, path = PIPELINES["story"], "/v1/completions"
    rewritten = 0
    for end in range(1, len("hello there")):
        prompt = "hello there"[:end]
        rewritten += task.opening(prompt).again > 0
        for how in ({}, {"temperature": 1.0, "seed": 2}, {"max_tokens": 1}):
            names = {"max_tokens": "max_length"}
            (right,) = task.generate([prompt], **{names.get(k, k): v for k, v in how.items()})
            asked = {"text": prompt, "model": "story", **how}
            text, answer = answered(server, path, logprobs=1, **asked)
            assert prompt + text == prompt + streamed(server, path, **asked)[0] == right
            found = answer["choices"][0]["logprobs"]
            assert "".join(found["tokens"]).startswith(text.split("\ufffd")[0])
            assert max([0, *found["text_offset"]]) <= len(text)
            whole = answered(server, path, echo=True, **asked)[0]
            assert whole == right
    assert rewritten > 5
