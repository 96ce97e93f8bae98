"""The official clients, unchanged: `openai` and `libretranslatepy`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest
from tests.apps.serve.servers import PIPELINES, Running, apart, running
from tests.oracles import oracle

from pellucid.generation import SampleConfig

pytestmark = pytest.mark.oracle("openai")
openai = oracle("openai")

TEXTS = ["안녕하세요", "hello", "오늘 기분이 어때요", "der Hund", "there, there", "기분"]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "be kind"}, {"role": "user", "content": text}]


@pytest.mark.parametrize("model", ["chat", "small-de-en"])
def test_chat_answers_as_the_pipeline_does(client: Any, model: str) -> None:
    for text in TEXTS:
        (right,) = PIPELINES[model].generate_answers([text])[0]
        answer = client.chat.completions.create(model=model, messages=asked(text))
        choice = answer.choices[0]
        assert choice.message.content == right.text
        assert choice.finish_reason == ("stop" if right.finished else "length")
        assert answer.usage.completion_tokens == len(right.tokens)


@pytest.mark.parametrize("model", ["chat", "small-de-en"])
def test_a_stream_adds_up_to_the_answer(client: Any, model: str) -> None:
    for text in TEXTS:
        chunks = list(
            client.chat.completions.create(
                model=model,
                messages=asked(text),
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        (right,) = PIPELINES[model].generate_answers([text])[0]
        assert "".join(pieces) == right.text
        assert chunks[-1].usage.completion_tokens == len(right.tokens)


def test_a_stream_comes_in_pieces_while_the_answer_is_generated(client: Any) -> None:
    stream = client.completions.create(model="endless", prompt="hello", max_tokens=999, stream=True)
    pieces = [chunk.choices[0].text for chunk in stream]
    assert sum(map(bool, pieces)) > 5
    whole = client.completions.create(model="endless", prompt="hello", max_tokens=999)
    assert "".join(pieces) == whole.choices[0].text


def test_sampling_is_keyed_by_the_seed_and_the_number_of_the_answer(client: Any) -> None:
    settings = {"temperature": 1.2, "top_p": 0.9, "seed": 11}
    answer = client.chat.completions.create(model="chat", messages=asked("hello"), n=3, **settings)
    trained = PIPELINES["chat"]
    config = SampleConfig(max_length=trained.search.max_length, **settings)
    right = replace(trained, sampling=config).generate_answers(["hello"] * 3)
    assert [choice.message.content for choice in answer.choices] == [one[0].text for one in right]
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_a_completion_is_the_continuation_alone(client: Any) -> None:
    for text in TEXTS:
        whole = PIPELINES["story"].generate([text])[0]
        answer = client.completions.create(model="story", prompt=text)
        assert text + answer.choices[0].text == whole


def test_several_prompts_have_choices_in_order(client: Any) -> None:
    answer = client.completions.create(model="story", prompt=TEXTS)
    whole = PIPELINES["story"].generate(TEXTS)
    assert [text + c.text for text, c in zip(TEXTS, answer.choices, strict=True)] == whole


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_text(client: Any, stream: bool) -> None:
    whole = PIPELINES["chat"].generate(["hello"])[0]
    stop = whole[len(whole) // 2 :][:2]
    answer: Any = client.completions.create(model="chat", prompt="hello", stop=stop, stream=stream)
    text = "".join(c.choices[0].text for c in answer) if stream else answer.choices[0].text
    assert text == whole[: whole.index(stop)]


def test_max_tokens_ends_an_answer(client: Any) -> None:
    answer = client.completions.create(model="endless", prompt="hello", max_tokens=5)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 5)


def test_an_empty_text_has_an_empty_answer(client: Any) -> None:
    answer = client.chat.completions.create(model="chat", messages=asked(""))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("", "stop")


def test_many_async_clients_get_the_answers_of_one(server: Running) -> None:
    texts = [f"{text} {i}" for i in range(11) for text in TEXTS]

    async def everybody() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0
        ) as client:

            async def one(i: int, text: str) -> str:
                if i % 2:
                    stream = await client.completions.create(model="chat", prompt=text, stream=True)
                    return "".join([chunk.choices[0].text async for chunk in stream])
                answer = await client.completions.create(model="chat", prompt=text)
                return str(answer.choices[0].text)

            return await asyncio.gather(*(one(i, text) for i, text in enumerate(texts)))

    assert apart(everybody()) == PIPELINES["chat"].generate(texts)


def test_embeddings_are_the_pipelines(client: Any) -> None:
    answer = client.embeddings.create(model="bert", input=TEXTS)
    right = [PIPELINES["bert"].embed([text])[0] for text in TEXTS]
    np.testing.assert_array_equal(
        np.array([one.embedding for one in answer.data], np.float32), right
    )
    plain = client.embeddings.create(model="bert", input="hello", encoding_format="float")
    np.testing.assert_allclose(plain.data[0].embedding, answer.data[1].embedding)


def test_models_are_listed(client: Any) -> None:
    assert [model.id for model in client.models.list()] == list(PIPELINES)
    assert client.models.retrieve("chat").owned_by == "pellucid"


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="no model of this name; there are: chat"):
        client.chat.completions.create(model="gpt-4o", messages=asked("hello"))
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("../../etc/passwd")
    with pytest.raises(openai.BadRequestError, match="Expected `float` <= 2") as caught:
        client.chat.completions.create(model="chat", messages=asked("hello"), temperature=3)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="tools is not supported"):
        client.chat.completions.create(
            model="chat", messages=asked("hello"), tools=[{"type": "function"}]
        )
    with pytest.raises(openai.BadRequestError, match="cannot generate"):
        client.chat.completions.create(model="bert", messages=asked("hello"))
    with pytest.raises(openai.BadRequestError, match="more than the 64 that this model can read"):
        client.chat.completions.create(model="chat", messages=asked("hello " * 99))
    image: Any = [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]
    with pytest.raises(openai.BadRequestError, match="content must be text"):
        client.chat.completions.create(model="chat", messages=[{"role": "user", "content": image}])


@pytest.mark.oracle("libretranslatepy")
def test_libretranslate_translates_detects_and_lists(server: Running) -> None:
    from libretranslatepy import LibreTranslateAPI

    libretranslate = LibreTranslateAPI(server.url)
    right = PIPELINES["small-de-en"].generate(["der Hund"])[0]
    assert libretranslate.translate("der Hund", "de", "en") == right
    assert libretranslate.translate("der Hund", "auto", "en") == right
    assert libretranslate.detect("der Hund und die Katze")[0]["language"] == "de"
    assert libretranslate.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    with pytest.raises(HTTPError, match="400") as caught:
        libretranslate.translate("hello", "en", "ko")
    with caught.value as response:
        assert b"cannot translate between" in response.read()
