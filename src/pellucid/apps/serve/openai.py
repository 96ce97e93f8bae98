"""OpenAI's endpoints: chat, completions, embeddings, models."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from pellucid.apps.serve.batcher import Job
from pellucid.apps.serve.fields import MODEL, Field, RequestError, read
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.service import Exchange
from pellucid.apps.serve.worker import Ticket
from pellucid.data.tokenizers import settled
from pellucid.generation import SampleConfig, SearchConfig

GENERATION = (
    MODEL,
    Field("max_tokens", "integer", "Longest answer, in tokens.", low=1, high=1e6),
    Field("max_completion_tokens", "integer", "The newer name of max_tokens.", low=1, high=1e6),
    Field(
        "temperature",
        "number",
        "Sample: below 1 less random, above 1 more. 0 is greedy. Without it and top_p, top_k and "
        "min_p the model answers by its own search.",
        low=0,
        high=2,
    ),
    Field("top_p", "number", "Sample among the likeliest tokens of this sum.", low=1e-6, high=1),
    Field("top_k", "integer", "Sample among this many likeliest tokens.", low=0, high=1e6),
    Field("min_p", "number", "Leave out tokens below this fraction.", low=0, high=0.999999),
    Field("seed", "integer", "Random seed; the same gives the same answer.", low=0, high=2**63 - 1),
    Field("n", "integer", "How many answers.", low=1, high=64),
    Field("stop", "text or list", "The answer ends before the first of these texts."),
    Field("stream", "boolean", "Send the answer piece by piece, as server-sent events."),
    Field("stream_options", "object", "include_usage: true sends the tokens used at the end."),
)
CHAT = (
    *GENERATION,
    Field("messages", "array", "The conversation; the model reads the last user message.", True),
)
COMPLETIONS = (
    *GENERATION,
    Field("prompt", "text or list", "What to answer or to continue.", required=True),
)
EMBEDDINGS = (
    MODEL,
    Field("input", "text or list", "Texts to embed.", required=True),
    Field("encoding_format", "string", "float or base64."),
)

REFUSED: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,), "echo": (False,), "frequency_penalty": (0,), "functions": ([],),
    "logit_bias": ({},), "logprobs": (False,), "presence_penalty": (0,),
    "response_format": ({"type": "text"},), "suffix": ("",), "tools": ([],), "top_logprobs": (0,),
    "audio": (), "dimensions": (),
}  # fmt: skip
"""What these models cannot do, and the values that ask for nothing."""


def error_body(status: int, message: str, field: str | None) -> dict[str, Any]:
    """Return an error as OpenAI writes it."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    code = "model_not_found" if status == 404 and field == "model" else codes.get(status)
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


async def models(exchange: Exchange) -> Response:
    """GET /v1/models, and /v1/models/NAME: the models, or one."""
    name = exchange.request.path_params.get("name")
    served = exchange.service.models
    if name is None:
        return JSONResponse({"object": "list", "data": [_card(one) for one in served.values()]})
    if name not in served:
        raise RequestError(404, f"there is no model of this name; there are: {', '.join(served)}",
                           "model")  # fmt: skip
    return JSONResponse(_card(served[name]))


def _card(served: Served) -> dict[str, Any]:
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "pellucid",
        "task": served.pipeline.kind,
        "use": served.use if served.example else None,
        "languages": served.languages,
    }


async def chat(exchange: Exchange) -> Response:
    """POST /v1/chat/completions: an answer to the last user message."""
    asked = _read(exchange, CHAT)

    def choice(text: str | None, index: int, reason: str | None, streamed: bool) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        if streamed:
            message = {} if text is None else message
            return {"index": index, "delta": message, "logprobs": None, "finish_reason": reason}
        message["refusal"] = None
        return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}

    form = _Form("chatcmpl", "chat.completion", "chat.completion.chunk", choice)
    return await _generate(exchange, asked, [_last_message(asked["messages"])], form)


async def completions(exchange: Exchange) -> Response:
    """POST /v1/completions: an answer to a text, or what follows it."""
    asked = _read(exchange, COMPLETIONS)

    def choice(text: str | None, index: int, reason: str | None, streamed: bool) -> dict[str, Any]:
        return {"index": index, "text": text or "", "logprobs": None, "finish_reason": reason}

    form = _Form("cmpl", "text_completion", "text_completion", choice)
    prompts = [asked["prompt"]] if isinstance(asked["prompt"], str) else asked["prompt"]
    return await _generate(exchange, asked, prompts, form)


async def embeddings(exchange: Exchange) -> Response:
    """POST /v1/embeddings: a vector for each text."""
    asked = _read(exchange, EMBEDDINGS)
    served = exchange.service.model(asked["model"], "embed")
    texts = [asked["input"]] if isinstance(asked["input"], str) else asked["input"]
    _check_number(exchange, len(texts), "input")
    encoding = asked["encoding_format"] or "float"
    if encoding not in ("float", "base64"):
        raise RequestError(400, "encoding_format must be float or base64", "encoding_format")
    rows, used = [], 0
    for text in texts:  # one by one: an embedding does not depend on the others in the request
        used += len(served.pipeline.token_ids(text))
        row = await exchange.service.worker.call(
            lambda text=text: served.pipeline.embeddings([text])[0]  # type: ignore[misc]
        )
        rows.append(np.asarray(row, np.float32))
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": row.tolist() if encoding == "float" else _base64(row),
        }
        for i, row in enumerate(rows)
    ]
    usage = {"prompt_tokens": used, "total_tokens": used}
    return JSONResponse({"object": "list", "data": data, "model": served.name, "usage": usage})


def _base64(row: np.ndarray) -> str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


@dataclass(frozen=True)
class _Form:
    """How an endpoint writes its answers."""

    prefix: str
    whole: str
    chunk: str
    choice: Callable[[str | None, int, str | None, bool], dict[str, Any]]
    """choice(text, index, finish_reason, whether streamed) -> one choice."""


class Text:
    """The text of one answer while it grows: what is new of it, up to a stop text."""

    def __init__(self, served: Served, source: Sequence[int], stops: Sequence[str]) -> None:
        self.served, self.source, self.stops = served, source, stops
        self.shown = 0
        self.stopped = False

    def more(self, tokens: Sequence[int], whole: bool) -> str:
        """Return the new text of these tokens; before the whole, less what may yet change."""
        if self.stopped:
            return ""
        text = self.served.text(self.source, tokens)
        text = text if whole else settled(text, self.served.pipeline.target)
        found = [place for stop in self.stops if (place := text.find(stop)) >= 0]
        if found:
            text, self.stopped = text[: min(found)], True
        elif self.stops and not whole:
            text = text[: max(0, len(text) - max(map(len, self.stops)) + 1)]
        new = text[self.shown :]
        self.shown += len(new)
        return new


def _read(exchange: Exchange, fields: Sequence[Field]) -> dict[str, Any]:
    for name, neutral in REFUSED.items():
        value = exchange.body.get(name)
        if value is not None and value not in neutral:
            raise RequestError(400, f"{name} is not supported; leave it out", name)
    return read(exchange.body, fields)


def _last_message(messages: Sequence[Any]) -> str:
    """Return the text of the last user message: these models read one text."""
    for message in reversed(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RequestError(400, "each of messages must have a role and a content", "messages")
        if message["role"] == "user":
            return _content(message.get("content"))
    raise RequestError(400, "messages must hold a message of the user", "messages")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    kinds = {part.get("type") if isinstance(part, dict) else None for part in parts}
    if kinds != {"text"} or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "a message's content must be text", "messages")
    return "".join(map(str, texts))


def _check_number(exchange: Exchange, number: int, field: str) -> None:
    most = exchange.service.limits.texts
    if not 1 <= number <= most:
        raise RequestError(400, f"expected 1 to {most} texts and answers, got {number}", field)


def _config(asked: Mapping[str, Any], served: Served) -> SearchConfig | SampleConfig:
    """Return how to answer: the model's own search unless the request asks for sampling."""
    own: SearchConfig = served.pipeline.search
    length = asked["max_completion_tokens"] or asked["max_tokens"] or own.max_length
    given = {
        name: asked[name]
        for name in ("temperature", "top_p", "top_k", "min_p")
        if asked[name] is not None
    }
    if given.get("temperature") == 0:
        return SearchConfig(max_length=length, constraints=own.constraints)
    if not given:
        return replace(own, best=1, max_length=length)
    seed = asked["seed"] if asked["seed"] is not None else random.getrandbits(31)
    return SampleConfig(**given, max_length=length, seed=seed, constraints=own.constraints)


def _stops(asked: Mapping[str, Any]) -> list[str]:
    stop = asked["stop"] or []
    stops = [stop] if isinstance(stop, str) else stop
    if len(stops) > 4 or "" in stops:
        raise RequestError(400, "stop must hold at most 4 texts, none empty", "stop")
    return stops


@dataclass
class _Answer:
    """One choice of a response."""

    ticket: Ticket | None
    """None for an empty text, whose answer is empty."""
    text: Text
    read: int
    """Tokens of the source."""

    @property
    def job(self) -> Job | None:
        return self.ticket.job if self.ticket else None

    @property
    def reason(self) -> str:
        """Why it ended."""
        ended = self.job is None or self.text.stopped or self.job.finished
        return "stop" if ended else "length"

    def more(self) -> tuple[str, bool]:
        """Return the new text and whether it was the last; raise what the model raised.

        A job whose stop text came is cancelled.
        """
        if self.ticket is None:
            return "", True
        job = self.ticket.job
        done = job.done  # read before the tokens: those that come in between are returned later
        if job.error is not None:
            raise job.error
        new = self.text.more(list(job.answer), done)
        if self.text.stopped:
            self.ticket.cancel()
        return new, done or self.text.stopped


async def _generate(
    exchange: Exchange, asked: Mapping[str, Any], texts: Sequence[str], form: _Form
) -> Response:
    served = exchange.service.model(asked["model"], "generate")
    copies = asked["n"] or 1
    _check_number(exchange, len(texts) * copies, "n" if copies > 1 else "prompt")
    config, stops = _config(asked, served), _stops(asked)
    each = bool(asked["stream"] or stops)
    sources = [await exchange.encode(served, text) for text in texts]
    answers = [
        _Answer(
            exchange.submit(served, source, config, number=number, each=each) if source else None,
            Text(served, source, stops),
            len(source),
        )
        for source in sources
        for number in range(copies)
    ]
    head = {
        "id": f"{form.prefix}-{random.getrandbits(96):024x}",
        "created": int(time.time()),
        "model": served.name,
    }
    if asked["stream"]:
        usage = bool((asked["stream_options"] or {}).get("include_usage"))
        events = _events(
            exchange, answers, {**head, "object": form.chunk}, form, copies if usage else 0
        )
        return Stream(events)
    written = []
    for answer in answers:
        pieces, done = [], False
        while not done:
            new, done = answer.more()
            pieces.append(new)
            if not done and answer.ticket is not None:
                await answer.ticket.change()
        written.append("".join(pieces))
    choices = [
        form.choice(text, i, answer.reason, False)
        for i, (text, answer) in enumerate(zip(written, answers, strict=True))
    ]
    used = _usage(answers, copies)
    return JSONResponse({**head, "object": form.whole, "choices": choices, "usage": used})


class Stream(Response):
    """Server-sent events, sent as they come. Starlette's own would watch for a client that goes."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them all."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for event in self.events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _events(
    exchange: Exchange,
    answers: Sequence[_Answer],
    head: Mapping[str, Any],
    form: _Form,
    copies: int,
) -> AsyncIterator[bytes]:
    """Write server-sent events, each answer's pieces as they come.

    copies: how many answers each text has, to write the tokens used at the end; 0 leaves them out.
    """
    began = exchange.request.state.began
    try:
        async with asyncio.timeout_at(began + exchange.service.limits.seconds):
            for i in range(len(answers)):
                yield _event({**head, "choices": [form.choice("", i, None, True)]})
            first = True
            going = list(enumerate(answers))
            while going:
                left = []
                for i, answer in going:
                    new, done = answer.more()
                    if new:
                        first = first and exchange.first_token()
                        yield _event({**head, "choices": [form.choice(new, i, None, True)]})
                    if done:
                        end = form.choice(None, i, answer.reason, True)
                        yield _event({**head, "choices": [end]})
                    else:
                        left.append((i, answer))
                going = left
                if going:
                    await _any_change([answer for _, answer in going])
        if copies:
            yield _event({**head, "choices": [], "usage": _usage(answers, copies)})
        yield b"data: [DONE]\n\n"
    except TimeoutError:
        yield _event(error_body(504, "the answer took too long", None))
    except Exception as error:
        exchange.failed(error)
        yield _event(error_body(500, "the model failed", None))


async def _any_change(answers: Sequence[_Answer]) -> None:
    tickets = [answer.ticket for answer in answers if answer.ticket]
    if len(tickets) == 1:
        await tickets[0].change()
        return
    tasks = [asyncio.ensure_future(ticket.change()) for ticket in tickets]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


def _usage(answers: Sequence[_Answer], copies: int) -> dict[str, int]:
    """Count tokens; a text is read once for all of its answers."""
    prompt = sum(answer.read for answer in answers[::copies])
    made = sum(len(answer.job.answer) for answer in answers if answer.job)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _event(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
