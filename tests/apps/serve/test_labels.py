"""Labels over HTTP, as clients of Hugging Face's text classification ask for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.apps.serve.servers import PIPELINES, Running, ask, running, shaken
from tests.oracles import oracle

from pellucid.apps.cli.serve import _log_requests
from pellucid.apps.serve.limits import Limits
from pellucid.data.tokenizers import train_tokenizer
from pellucid.models.classifier import Classifier
from pellucid.models.config import ClassifierConfig
from pellucid.tasks import ClassifierTask

TEXTS = train_tokenizer(["hello there\tder hund"], "char")
NAMES = ["good", "bad", "odd"]


def labelling(labels: Any) -> ClassifierTask:
    names = train_tokenizer(NAMES, "label")
    config = ClassifierConfig(
        vocab_size=TEXTS.vocab_size, label_vocab_size=names.vocab_size, labels=labels, d_model=12,
        num_attention_heads=2, ffn_dim=17, num_hidden_layers=1, max_position_embeddings=23,
    )  # fmt: skip
    return ClassifierTask(shaken(Classifier(config, seed=0)), TEXTS, names)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    own = {"topics": labelling("text"), "tags": labelling("token")}
    PIPELINES.update(own)
    try:
        with running(replace(Limits(), texts=3)) as server:
            yield server
    finally:
        for name in own:
            del PIPELINES[name]


def test_a_text_has_its_labels_with_probabilities_likeliest_first(server: Running) -> None:
    status, _, found = ask(server, "/models/topics", {"inputs": "hello"})
    assert status == 200
    ((guesses,),) = PIPELINES["topics"].labels(["hello"], best=5)
    assert found == [[{"label": guess.token, "score": guess.p} for guess in guesses]]
    assert sum(each["score"] for each in found[0]) == pytest.approx(1, abs=1e-5)
    body = {"inputs": ["hello", "hund\tder"], "parameters": {"top_k": 1}}
    _, _, both = ask(server, "/models/topics", body)
    assert [len(labels) for labels in both] == [1, 1]
    assert both[0][0] == found[0][0]


def test_what_training_never_saw_is_in_the_first_label_and_in_no_log(
    server: Running,
) -> None:
    _, _, (plain, strange) = ask(server, "/models/topics", {"inputs": ["hello", "hello жё"]})
    assert not any("unknown" in label for label in (*plain, *strange[1:]))
    assert strange[0]["unknown"] == ["ж", "ё"]
    _, _, tags = ask(server, "/models/tags", {"inputs": "derж"})
    assert [label.get("unknown") for label in tags] == [["ж"], None, None, None]


def test_the_servers_log_has_no_text(caplog: pytest.LogCaptureFixture) -> None:
    task, log = labelling("text"), logging.getLogger("pellucid.apps.serve")
    before = logging.getLogger("pellucid.tasks.quoting").level, log.level, [*log.handlers]
    task.labels(["hello ж"])
    assert "ж" in caplog.text
    caplog.clear()
    _log_requests()
    try:
        task.labels(["hello ж"])
        assert not caplog.text
        logging.getLogger("pellucid.tasks.task").warning("of no text")
        assert "of no text" in caplog.text
    finally:
        logging.getLogger("pellucid.tasks.quoting").setLevel(before[0])
        log.setLevel(before[1])
        log.handlers[:], log.propagate = before[2], True


def test_tokens_have_a_label_each(server: Running) -> None:
    _, _, found = ask(server, "/models/tags", {"inputs": "der"})
    assert [each["word"] for each in found] == ["d", "e", "r"]
    assert {each["entity"] for each in found} <= set(NAMES)
    _, _, several = ask(server, "/models/tags", {"inputs": ["der"]})
    assert several == [found]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/models/topics", {}, 400, "inputs"),
        ("/models/topics", {"inputs": []}, 400, "expected 1 to 3 texts, got 0"),
        ("/models/topics", {"inputs": ["a"] * 4}, 400, "expected 1 to 3 texts, got 4"),
        ("/models/topics", {"inputs": "e" * 24}, 400, "has 24 tokens; this model reads 1 to 23"),
        ("/models/topics", {"inputs": ""}, 400, "'' has 0 tokens"),
        ("/models/topics", {"inputs": "e", "parameters": {"top_k": 0}}, 400, "top_k"),
        (
            "/models/topics",
            {"inputs": "e", "parameters": {"function_to_apply": "sigmoid"}},
            400,
            "function_to_apply",
        ),
        ("/models/chat", {"inputs": "e"}, 400, "chat cannot label"),
        ("/models/none", {"inputs": "e"}, 404, "no model of this name; there are: topics, tags"),
        ("/v1/embeddings", {"model": "topics", "input": "e"}, 400, "topics cannot embed"),
        ("/fill", {"model": "topics", "text": "e"}, 400, "topics cannot fill"),
        ("/v1/completions", {"model": "topics", "prompt": "e"}, 400, "topics cannot generate"),
    ],
)
def test_what_cannot_be_labelled_is_refused(
    server: Running, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    got, _, answer = ask(server, path, body)
    assert (got, message in answer["error"]["message"]) == (status, True), answer


def test_the_viewer_has_the_record_of_a_label(server: Running) -> None:
    assert ask(server, "/view?model=topics")[0] == 200
    status, _, found = ask(server, "/view/record", {"model": "topics", "text": "hello"})
    assert status == 200
    (step,) = found["steps"]
    ((guesses,),) = PIPELINES["topics"].labels(["hello"], best=3)
    assert [each[0] for each in step["candidates"]] == [guess.token for guess in guesses]
    assert [each[2] for each in step["candidates"]] == pytest.approx([g.p for g in guesses])
    _, _, tags = ask(server, "/view/record", {"model": "tags", "text": "der"})
    assert [step["place"] for step in tags["steps"]] == [0, 1, 2]
    assert ask(server, "/view/record", {"model": "topics", "text": "e" * 24})[0] == 400


def test_the_others_of_the_command_are_served_and_both_are_listed(server: Running) -> None:
    _, _, found = ask(server, "/v1/models")
    uses = {one["id"]: (one["task"], one["use"]) for one in found["data"]}
    assert uses["topics"] == ("label", "label")
    assert uses["chat"] == ("answer", "chat")
    assert ask(server, "/view?model=chat")[0] == 200
    _, _, described = ask(server, "/openapi.json")
    entry = described["paths"]["/models/{name}"]["post"]
    assert entry["x-use"] == ["label"]
    example = entry["requestBody"]["content"]["application/json"]["example"]
    (topics,) = (one for one in found["data"] if one["id"] == "topics")
    assert example == {"inputs": "TEXT"}
    assert ask(server, "/models/topics", {"inputs": topics["examples"][0]})[0] == 200
    assert [parameter["name"] for parameter in entry["parameters"]] == ["name"]


@pytest.mark.oracle("huggingface_hub")
def test_hugging_faces_client_reads_the_labels(server: Running) -> None:
    hub = oracle("huggingface_hub")
    client = hub.InferenceClient(model=f"{server.url}/models/topics")
    found = client.text_classification("hello")
    ((guesses,),) = PIPELINES["topics"].labels(["hello"], best=5)
    assert [each.label for each in found] == [guess.token for guess in guesses]
    assert [each.score for each in found] == [guess.p for guess in guesses]
