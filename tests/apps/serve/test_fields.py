"""One rule for the fields of /v1: followed, asks for nothing, or refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from tests.apps.serve.servers import PIPELINES, TOKENIZER, Running, ask, running

from pellucid.apps.serve.openai import FIELDS, Chat, Completions, unfollowed
from pellucid.system.files import read_toml

ROOT = Path(__file__).parents[3]
TABLE = unfollowed()
PATHS = {"/v1/chat/completions": Chat, "/v1/completions": Completions}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def body(path: str, text: str = "hello", model: str = "chat", **more: Any) -> dict[str, Any]:
    asked: Any = {"messages": [{"role": "user", "content": text}]}
    return {"model": model, **(asked if "chat" in path else {"prompt": text}), **more}


def answered(server: Running, path: str, **more: Any) -> Any:
    status, _, answer = ask(server, path, body(path, **more))
    assert status == 200, answer
    return answer["choices"][0]


@pytest.mark.parametrize("path", PATHS)
def test_a_field_that_asks_for_nothing_is_taken_and_changes_nothing(
    server: Running, path: str
) -> None:
    own = PATHS[path].__struct_fields__
    plain = answered(server, path)
    most = max(len(values or ["any"]) for values in TABLE.values())
    for i in range(most):
        fields = {
            name: values[i % len(values)] if values else {"x": [i]}
            for name, values in TABLE.items()
            if values != [] and name not in own
        }
        assert answered(server, path, **fields) == plain
    empty = dict.fromkeys((*TABLE, "temperature", "seed", "logprobs", "stop"))
    for name in ("model", "messages", "prompt"):
        empty.pop(name, None)
    assert answered(server, path, **empty) == plain


@pytest.mark.parametrize("path", PATHS)
def test_a_field_that_would_change_the_answer_is_refused_by_name(
    server: Running, path: str
) -> None:
    own = PATHS[path].__struct_fields__
    for name, values in TABLE.items():
        if values is None or name in own:
            continue
        for asked in ([5], "x+", 3, 0.37, {"a": 1}, True, False, 0, 1, ""):
            if any(type(asked) is type(v) and asked == v for v in values) or asked in values:
                continue
            status, _, answer = ask(server, path, body(path, **{name: asked}))
            assert (status, answer["error"]["param"]) == (400, name), (name, asked)
            assert answer["error"]["message"] == f"{name} is not supported; leave it out"
            break
        else:
            raise AssertionError(name)


@pytest.mark.parametrize("path", [*PATHS, "/v1/embeddings"])
def test_an_unknown_field_is_refused_by_name(server: Running, path: str) -> None:
    asked = {"model": "bert", "input": "a"} if "embeddings" in path else body(path)
    for name, near in (("xyzzy", ""), ("modle", " (did you mean model?)")):
        status, _, answer = ask(server, path, {**asked, name: None})
        assert status == 200
        status, _, answer = ask(server, path, {**asked, name: 1})
        assert (status, answer["error"]["param"]) == (400, name)
        assert answer["error"]["message"] == f"there is no field {name}{near}; leave it out"


def test_every_server_of_the_table_has_a_source_and_no_field_stands_twice() -> None:
    servers = read_toml(FIELDS)
    assert all(server["source"] for server in servers.values())
    assert all(server["read"] for name, server in servers.items() if name != "Pellucid")
    names = [n for server in servers.values() for n in (*server["unheeded"], *server["neutral"])]
    assert len(names) == len(set(names)) == len(TABLE)


@pytest.mark.parametrize("name", ["serve.md", "serve.ko.md"])
def test_the_docs_have_the_fields_of_the_table(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    for server, fields in read_toml(FIELDS).items():
        (row,) = re.findall(rf"^\| \[{re.escape(server)}\]\(.*$|^\| {server} \|.*$", text, re.M)
        _, _, unheeded, neutral, _ = row.split("|")
        assert re.findall(r"`(\w+)`", unheeded) == fields["unheeded"], server
        assert re.findall(r"`(\w+)", neutral) == [*fields["neutral"]], server
        assert fields["source"].strip("`") in row or server == "Pellucid"


def test_settings_of_a_request_are_those_of_the_pipeline(server: Running) -> None:
    path = "/v1/completions"
    trained = PIPELINES["chat"]
    for theirs, ours in (
        ({"repetition_penalty": 3.5}, {"repetition_penalty": 3.5}),
        ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram": 1}),
        ({"min_tokens": 17}, {"min_length": 17}),
        ({"min_length": 17}, {"min_length": 17}),
        ({"repetition_penalty": 1, "no_repeat_ngram_size": 0, "min_tokens": 0}, {}),
        ({"temperature": 1.3, "top_p": 0}, {"beam": 1}),
        ({"top_p": 0, "min_tokens": 19}, {"beam": 1, "min_length": 19}),
        ({"temperature": 0.9, "seed": 4, "top_k": -1}, {"temperature": 0.9, "seed": 4}),
        ({"do_sample": True, "seed": 4}, {"temperature": 1.0, "seed": 4}),
        ({"do_sample": False, "temperature": 0.5}, {}),
    ):
        for text in ("hello", "der Hund"):
            wanted = trained.generate([text], **ours)[0]
            assert answered(server, path, text=text, **theirs)["text"] == wanted, theirs
    drawn = {answered(server, path, temperature=2, seed=-1)["text"] for _ in range(5)}
    assert len(drawn) > 1
    for wrong in ({"repetition_penalty": 0.5}, {"seed": -2}, {"top_p": 1.1}, {"min_tokens": -1}):
        assert ask(server, path, body(path, **wrong))[0] == 400


@pytest.mark.parametrize("model", ["chat", "small-de-en", "story"])
def test_log_probabilities_are_those_of_the_tokens(server: Running, model: str) -> None:
    trained = PIPELINES[model]
    for text in ("hello", "안녕하세요"):
        (right,) = trained.generate_answers([text])[0]
        source = trained.source.encode(text)
        (scores,) = trained.token_scores([(source, right.tokens)])
        choice = answered(server, "/v1/chat/completions", text=text, model=model,
                          logprobs=True, top_logprobs=3)  # fmt: skip
        content = choice["logprobs"]["content"]
        np.testing.assert_allclose(
            [one["logprob"] for one in content], scores.log_p[: len(right.tokens)], atol=1e-5
        )
        written = b"".join(bytes(one["bytes"]) for one in content)
        assert written.decode(errors="replace") == choice["message"]["content"]
        for one in content:
            values = [other["logprob"] for other in one["top_logprobs"]]
            assert len(values) == 3
            assert values == sorted(values, reverse=True)
            assert values[0] >= one["logprob"] - 1e-6
        stopped = answered(server, "/v1/completions", text=text, model=model, logprobs=2)
        found = stopped["logprobs"]
        assert found["token_logprobs"] == [one["logprob"] for one in content]
        assert found["text_offset"][0] == 0
        assert found["text_offset"] == sorted(found["text_offset"])
        assert {len(one) for one in found["top_logprobs"]} <= {2, 3}
        assert sum(len(one) == 3 for one in found["top_logprobs"]) < len(content)
        assert answered(server, "/v1/completions", text=text, model=model)["logprobs"] is None


def test_a_stream_ends_with_the_log_probabilities(server: Running) -> None:
    path = "/v1/chat/completions"
    whole = answered(server, path, logprobs=True, top_logprobs=1)
    asked = json.dumps(body(path, logprobs=True, top_logprobs=1, stream=True)).encode()
    request = Request(server.url + path, asked, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        events = [line[6:] for line in response.read().decode().split("\n") if line[:6] == "data: "]
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    found = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert found == [whole["logprobs"]]
    assert choices[-1]["logprobs"] == whole["logprobs"]


def test_echo_returns_the_prompt_with_its_log_probabilities(server: Running) -> None:
    trained = PIPELINES["story"]
    plain = answered(server, "/v1/completions", model="story")
    choice = answered(server, "/v1/completions", model="story", echo=True, logprobs=1)
    assert choice["text"] == "hello" + plain["text"]
    ids = trained.source.encode("hello")
    tokens = trained.generate_answers(["hello"])[0][0].tokens
    (scores,) = trained.token_scores([([], [*ids, *tokens])])
    found = choice["logprobs"]
    np.testing.assert_allclose(found["token_logprobs"], scores.log_p[:-1], atol=1e-5)
    assert found["text_offset"][: len(ids)] == [
        len(TOKENIZER.decode(ids[:i])) for i in range(len(ids))
    ]
    answer = ask(server, "/v1/completions", body("/v1/completions", echo=True))[2]
    assert answer["error"]["param"] == "echo"
    asked = body("/v1/chat/completions", top_logprobs=2)
    assert ask(server, "/v1/chat/completions", asked)[2]["error"]["param"] == "top_logprobs"


def test_a_decoder_alone_begins_from_nothing(server: Running) -> None:
    asked = {"temperature": 1.0, "seed": 3}
    right = PIPELINES["story"].generate([""], **asked)[0]
    for path in PATHS:
        choice = answered(server, path, text="", model="story", **asked)
        assert (choice.get("text") or choice["message"]["content"]) == right
        choice = answered(server, path, text="", model="chat", logprobs=True)
        assert (choice.get("text", "") or choice.get("message", {}).get("content", "")) == ""
    choice = answered(server, "/v1/completions", text="", model="story", logprobs=1, **asked)
    assert len(choice["logprobs"]["tokens"]) > 0
