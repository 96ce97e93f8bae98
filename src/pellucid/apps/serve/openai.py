"""OpenAI's endpoints: chat, completions, embeddings, models."""

import asyncio
import base64
import json
import math
import random
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from pellucid.apps.serve.batcher import Job
from pellucid.apps.serve.fields import (
    ModelName,
    RequestError,
    T,
    Temperature,
    Texts,
    about,
    listed,
    read,
)
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.service import Exchange, find_model
from pellucid.core.settings import nearest
from pellucid.data.tokenizers import settled
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.system.files import read_toml
from pellucid.tasks.generation import Opening, piece_numbers
from pellucid.tasks.passage import Passage

Tokens = Annotated[int, Meta(ge=1, le=10**6)]
TopP = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=10**6)]
Seed = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=10**6)]
Penalty = Annotated[float, Meta(ge=1, le=10**6)]
Most = Annotated[int, Meta(ge=0, le=20)]
MinP = Annotated[float, Meta(ge=0, le=0.999999)]
Copies = Annotated[int, Meta(ge=1, le=64)]


class Generation(Struct, kw_only=True):
    """The fields that /v1/chat/completions and /v1/completions share."""

    model: ModelName
    max_tokens: Annotated[Tokens | None, about("Longest answer, in tokens.")] = None
    max_completion_tokens: Annotated[Tokens | None, about("The newer name of max_tokens.")] = None
    temperature: Annotated[
        Temperature | None,
        about(
            "Sample: below 1 less random, above 1 more. 0 is greedy. Without it and top_p, top_k "
            "and min_p the model answers by its own search."
        ),
    ] = None
    top_p: Annotated[TopP | None, about("Sample among the likeliest tokens of this sum.")] = None
    top_k: Annotated[TopK | None, about("Sample among this many tokens; 0, -1: all.")] = None
    min_p: Annotated[MinP | None, about("Leave out tokens below this fraction.")] = None
    do_sample: Annotated[bool | None, about("true samples; false searches.")] = None
    seed: Annotated[Seed | None, about("Random seed; the same gives the same answer.")] = None
    repetition_penalty: Annotated[Penalty | None, about("Factor of log p of a token again.")] = None
    no_repeat_ngram_size: Annotated[Count | None, about("No such n-gram twice; 0: any.")] = None
    min_tokens: Annotated[Count | None, about("Shortest answer, in tokens.")] = None
    min_length: Annotated[Count | None, about("Another name of min_tokens.")] = None
    n: Annotated[Copies, about("How many answers.")] = 1
    stop: Annotated[Texts, about("The answer ends before the first of these texts.")] = []
    stream: Annotated[bool, about("Send the answer in pieces, as server-sent events.")] = False
    stream_options: Annotated[
        dict[str, Any], about("include_usage: true sends the tokens used at the end.")
    ] = {}


class Part(Struct):
    """A part of a message; only those of type text can be read."""

    type: str
    text: str | None = None


class ChatMessage(Struct):
    """A message of a conversation."""

    role: str
    content: str | list[Part] | None = None


class Chat(Generation, kw_only=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[
        list[ChatMessage], about("The conversation; the model reads the last user message.")
    ]
    logprobs: Annotated[bool, about("Return log p of each token of the answer.")] = False
    top_logprobs: Annotated[Most, about("Log p of this many likeliest tokens, too.")] = 0


class Completions(Generation, kw_only=True):
    """The body of POST /v1/completions."""

    prompt: Annotated[Texts, about("What to answer or to continue.")]
    logprobs: Annotated[Most | bool, about("Log p of tokens, and of this many others.")] = False
    echo: Annotated[bool, about("Return the prompt before what follows it.")] = False


class Embeddings(Struct):
    """The body of POST /v1/embeddings."""

    model: ModelName
    input: Annotated[Texts, about("Texts to embed.")]
    encoding_format: Annotated[Literal["float", "base64"], about("How a vector is written.")] = (
        "float"
    )


FIELDS = Path(__file__).with_name("fields.toml")


@cache
def unfollowed() -> dict[str, list[Any] | None]:
    """Return the fields of other servers that this one ignores, and the values accepted.

    The accepted values change nothing; any other is refused. None: all values are accepted.
    """
    servers = read_toml(FIELDS).values()
    unheeded = (name for server in servers for name in server["unheeded"])
    neutral = {n: values for server in servers for n, values in server["neutral"].items()}
    return {**dict.fromkeys(unheeded), **neutral}


def error_body(status: int, message: str, field: str | None) -> dict[str, Any]:
    """Make the JSON of an error in OpenAI's format."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    code = "model_not_found" if status == 404 and field == "model" else codes.get(status)
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


async def models(exchange: Exchange) -> Response:
    """GET /v1/models, and /v1/models/NAME: list the models, or describe one."""
    name = exchange.request.path_params.get("name")
    served = exchange.service.models
    if name is None:
        return JSONResponse({"object": "list", "data": [_card(one) for one in served.values()]})
    return JSONResponse(_card(find_model(served, name, served)))


def _card(served: Served) -> dict[str, Any]:
    """Describe a served model."""
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "pellucid",
        "task": served.pipeline.kind,
        "use": served.use if served.example else None,
        "languages": served.languages,
        "about": served.about,
        "examples": served.texts,
    }


async def embeddings(exchange: Exchange) -> Response:
    """POST /v1/embeddings: embed each text as a vector."""
    asked = _read(exchange, Embeddings)
    served = exchange.service.model(asked.model, "embed")
    texts = listed(asked.input)
    _check_number(exchange, len(texts), "input")
    data, used = [], 0
    for i, text in enumerate(texts):  # one by one: no embedding depends on the others
        used += len(await exchange.aside(served.pipeline.token_ids, text))
        (row,) = await exchange.service.worker.call(served.pipeline.embed, [text])
        row = np.asarray(row, "<f4")
        plain = asked.encoding_format == "float"
        written = row.tolist() if plain else base64.b64encode(row.tobytes()).decode()
        data.append({"object": "embedding", "index": i, "embedding": written})
    usage = {"prompt_tokens": used, "total_tokens": used}
    body = {"object": "list", "data": data, "model": served.name, "usage": usage}
    return JSONResponse({**body, **served.unknown(asked.input)})


async def chat(exchange: Exchange) -> Response:
    """POST /v1/chat/completions: answer the last user message."""
    asked = _read(exchange, Chat)
    return await _generate(exchange, asked, [_last_message(asked.messages)])


async def completions(exchange: Exchange) -> Response:
    """POST /v1/completions: answer a text, or continue it."""
    asked = _read(exchange, Completions)
    return await _generate(exchange, asked, listed(asked.prompt))


def _read(exchange: Exchange, kind: type[T]) -> T:
    """Parse a body.

    Raises `RequestError` for a field that is unknown or not supported.
    """
    known, followed = unfollowed(), kind.__struct_fields__
    for name, value in exchange.body.items():
        if value is None or name in followed:
            continue
        if name not in known:
            near = nearest(name, followed)
            raise RequestError(400, f"there is no field {name[:40]}{near}; leave it out", name)
        neutral = known[name]
        # In Python 0 is False; "logprobs": 0 asks for something, False for nothing.
        if neutral is not None and not any(
            one == value and isinstance(one, bool) == isinstance(value, bool) for one in neutral
        ):
            raise RequestError(400, f"{name} is not supported; leave it out", name)
    return read(exchange.body, kind)


def _last_message(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the last user message, which is all that these models read.

    Raises `RequestError` if there is none, or if a part of it is not text.
    """
    content = next((one.content for one in reversed(messages) if one.role == "user"), None)
    if content is None:
        raise RequestError(400, "messages must hold a message of the user", "messages")
    if isinstance(content, str):
        return content
    texts = [part.text for part in content if part.type == "text" and part.text is not None]
    if not texts or len(texts) < len(content):
        raise RequestError(400, "a message's content must be text", "messages")
    return "".join(texts)


def _check_number(exchange: Exchange, number: int, field: str) -> None:
    """Raise `RequestError` for too many or no texts."""
    limits = exchange.service.limits
    most = min(limits.texts, limits.waiting)
    if not 1 <= number <= most:
        raise RequestError(400, f"expected 1 to {most} texts and answers, got {number}", field)


def _config(asked: Generation, served: Served) -> SearchConfig | SampleConfig:
    """Return the settings of sampling, greedy search (temperature 0) or the model's own search."""

    def given(**names: str) -> dict[str, Any]:
        found = {name: getattr(asked, theirs) for name, theirs in names.items()}
        return {name: value for name, value in found.items() if value is not None}

    own: SearchConfig = served.pipeline.search
    length = asked.max_completion_tokens or asked.max_tokens or own.max_length
    least = "min_length" if asked.min_tokens is None else "min_tokens"
    rules = given(repetition_penalty="repetition_penalty", no_repeat_ngram="no_repeat_ngram_size")
    constraints = replace(own.constraints, **rules, **given(min_length=least))
    draws = given(temperature="temperature", top_p="top_p", top_k="top_k", min_p="min_p")
    if asked.do_sample is False or not (draws or asked.do_sample):
        return replace(own, best=1, max_length=length, constraints=constraints)
    if draws.get("temperature") == 0:
        return SearchConfig(max_length=length, constraints=constraints)
    draws |= {"top_p": max(draws.get("top_p", 1), 1e-9), "top_k": max(draws.get("top_k", 0), 0)}
    seed = random.getrandbits(31) if asked.seed in (None, -1) else asked.seed
    return SampleConfig(**draws, max_length=length, seed=seed, constraints=constraints)


@dataclass
class Answer:
    """One choice of a response while it is generated: the answers to a text's pieces."""

    served: Served
    passage: Passage
    openings: Sequence[Opening]
    jobs: Sequence[Job]
    """One job per piece."""
    stops: Sequence[str]
    shown: int = 0
    """Number of characters that were returned already."""
    stopped: bool = False
    """Whether a stop text was generated."""
    used: int | None = None
    """Number of tokens to the end of the stop text; None without one."""
    whole: list[str] = field(default_factory=list)
    """Text of the answer to each finished piece, with the text behind it."""

    @property
    def reason(self) -> str:
        """The reason for the end: "stop" or "length"."""
        return "stop" if self.stopped or all(job.finished for job in self.jobs) else "length"

    @property
    def tokens(self) -> list[list[int]]:
        """Token ids of the answer to each piece, to the end of a stop text."""
        most, found = self.used, list[list[int]]()
        for job in self.jobs:
            found.append(job.answer[:most])
            most = None if most is None else most - len(found[-1])
        return found

    def more(self) -> tuple[str, bool]:
        """Return (text since the last call, whether it was the last).

        Text that may be the beginning of a stop text is held back. Jobs are cancelled after a stop
        text. Raises the exception of a job that failed.
        """
        # Read before the tokens: those that come in between are returned later.
        done = all(job.done for job in self.jobs)
        for job in self.jobs:
            if job.error is not None:
                raise job.error
        text = self._text()
        if self._end(text) is not None:
            # The fewest tokens that hold one: how many came after it is a matter of timing.
            self.used = bisect_left(
                range(sum(map(len, self.tokens))),
                True,
                key=lambda n: self._end(self._text(n)) is not None,
            )
            text, self.stopped = self._text(self.used), True
            text = text[: self._end(text)]
            for job in self.jobs:
                job.cancel()
        elif self.stops and not done:
            text = text[: max(0, len(text) - max(map(len, self.stops)) + 1)]
        new = text[self.shown :]
        self.shown += len(new)
        return new, done or self.stopped

    def _text(self, most: float = math.inf) -> str:
        """Return the text of at most `most` tokens that later tokens cannot change."""
        text = self.passage.kept[0]
        for place, job in enumerate(self.jobs):
            done = job.done
            some = job.answer[: int(min(most, len(job.answer)))]
            if not done or len(some) < len(job.answer):
                piece = self.served.text(self.openings[place], some)
                return text + settled(piece, self.served.pipeline.target)
            if place == len(self.whole):
                piece = self.served.text(self.openings[place], some)
                self.whole.append(piece + self.passage.behind(place, piece))
            text += self.whole[place]
            most -= len(some)
        return text

    def _end(self, text: str) -> int | None:
        """Return where the first stop text begins, or None."""
        return min((place for stop in self.stops if (place := text.find(stop)) >= 0), default=None)


async def _generate(exchange: Exchange, asked: Generation, texts: Sequence[str]) -> Response:
    """Answer a request for chat or completions, at once or as a stream."""
    served = exchange.service.model(asked.model, "generate")
    _check_number(exchange, len(texts) * asked.n, "n" if asked.n > 1 else "prompt")
    config = _config(asked, served)
    if asked.n > 1 and isinstance(config, SearchConfig):
        raise RequestError(
            400, "n answers would be the same one: give a temperature, or leave out n", "n"
        )
    stops = listed(asked.stop)
    if len(stops) > 4 or "" in stops:
        raise RequestError(400, "stop must hold at most 4 texts, none empty", "stop")
    echo = isinstance(asked, Completions) and asked.echo
    if echo and served.pipeline.kind != "continue":
        raise RequestError(400, f"echo: {served.name} does not continue texts", "echo")
    if isinstance(asked, Chat) and asked.top_logprobs and not asked.logprobs:
        raise RequestError(400, "top_logprobs needs logprobs: true", "top_logprobs")
    each = asked.stream or bool(stops)
    read = [await exchange.openings(served, text) for text in texts]
    answers = []
    for passage, openings in read:
        for number in range(asked.n):
            keys = piece_numbers(number, len(openings))
            jobs = [
                exchange.job(served, opening, config, number=key, each=each)
                for opening, key in zip(openings, keys, strict=True)
            ]
            answers.append(Answer(served, passage, openings, jobs, stops))
    exchange.submit()
    is_chat = isinstance(asked, Chat)
    whole, chunk = (
        ("chat.completion", "chat.completion.chunk") if is_chat else ("text_completion",) * 2
    )
    head = {
        "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{random.getrandbits(96):024x}",
        "object": chunk if asked.stream else whole,
        "created": int(time.time()),
        "model": served.name,
        **served.unknown(asked.prompt if isinstance(asked, Completions) else texts[0]),
    }
    if asked.stream:
        return Stream(_events(exchange, asked, answers, head), media_type="text/event-stream")
    written = [_echoed(asked, answer) for answer in answers]
    async for i, new, _ in _pieces(exchange, answers):
        written[i] += new
    choices = [
        _choice(asked, i, text, answer.reason, await _logprobs(exchange, asked, answer))
        for i, (text, answer) in enumerate(zip(written, answers, strict=True))
    ]
    return JSONResponse({**head, "choices": choices, "usage": _usage(answers, asked.n)})


async def _pieces(
    exchange: Exchange, answers: Sequence[Answer]
) -> AsyncIterator[tuple[int, str, bool]]:
    """Yield (index of an answer, new text, whether it was the last) as answers grow."""
    going = dict(enumerate(answers))
    while going:
        exchange.submit()
        for i, answer in list(going.items()):
            new, done = answer.more()
            if done:
                del going[i]
            if new or done:
                yield i, new, done
        if going:
            await exchange.change()


class Stream(StreamingResponse):
    """A response of server-sent events.

    `connection` notices if the client disconnects.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events; `connection` sees a client that left, not Starlette."""
        await self.stream_response(send)


async def _events(
    exchange: Exchange, asked: Generation, answers: Sequence[Answer], head: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    """Yield server-sent events with the pieces of all answers."""

    def event(*choices: dict[str, Any]) -> bytes:
        return _event({**head, "choices": choices})

    first = True
    try:
        async with asyncio.timeout_at(exchange.began + exchange.service.limits.seconds):
            for i, answer in enumerate(answers):
                yield event(_choice(asked, i, _echoed(asked, answer), None))
            async for i, new, done in _pieces(exchange, answers):
                if new:
                    if first:
                        path = exchange.request.url.path
                        exchange.service.metrics.first_token.labels(path).observe(exchange.seconds)
                        first = False
                    yield event(_choice(asked, i, new, None))
                if done:
                    found = await _logprobs(exchange, asked, answers[i])
                    yield event(_choice(asked, i, None, answers[i].reason, found))
        if asked.stream_options.get("include_usage"):
            yield _event({**head, "choices": [], "usage": _usage(answers, asked.n)})
        yield b"data: [DONE]\n\n"
    except TimeoutError:
        yield _event(error_body(504, exchange.said("the answer took too long"), None))
    except Exception as error:
        exchange.failed(error)
        yield _event(error_body(500, exchange.said("the model failed"), None))


def _choice(
    asked: Generation, index: int, text: str | None, reason: str | None, logprobs: Any = None
) -> dict[str, Any]:
    """Make a choice of a response: a whole answer, or a piece of a stream.

    In a stream, a piece without text ends the answer.
    """
    content: dict[str, Any] = {"text": text or ""}
    if isinstance(asked, Chat):
        content = {} if text is None else {"role": "assistant", "content": text}
        content = {"delta": content} if asked.stream else {"message": {**content, "refusal": None}}
    return {"index": index, **content, "logprobs": logprobs, "finish_reason": reason}


def _echoed(asked: Generation, answer: Answer) -> str:
    """Return the prompt if the request asks for it, else ""."""
    echo = isinstance(asked, Completions) and asked.echo
    return answer.openings[0].text if echo else ""


async def _logprobs(exchange: Exchange, asked: Any, answer: Answer) -> dict[str, Any] | None:
    """Return log p of an answer's tokens, and of an echoed prompt's; None if not asked for."""
    if asked.logprobs is False:
        return None
    chat, task = isinstance(asked, Chat), answer.served.pipeline
    count = asked.top_logprobs if chat else int(asked.logprobs)
    each, others, offsets = list[Any](), list[Any](), list[int]()
    before = len(answer.passage.kept[0])
    for place, (opening, tokens) in enumerate(zip(answer.openings, answer.tokens, strict=True)):
        read, again = list(opening.source), opening.again
        if _echoed(asked, answer):
            read, tokens, again = [], [*read, *tokens], 0
        unread = 0 if read or task.begins else 1  # the first is predicted behind a begin token
        behind = [*read, *tokens[:unread]], tokens[unread:]
        call = exchange.service.worker.call
        found = await call(task.likeliest, *behind, count) if behind[1] else []
        likeliest = [*[(None, [])] * unread, *found]
        inside = bool(read) and task.kind == "continue"  # the answer begins inside a text
        text = b""
        for i, (token, (log_p, best)) in enumerate(zip(tokens, likeliest, strict=True)):
            spelled = task.target.spelled[inside or i > 0]
            cut = max(0, again)  # what is written of the prompt again is no part of the answer
            each.append(_entry(spelled, token, log_p, cut))
            others.append([_entry(spelled, other, theirs, cut) for other, theirs in best])
            offsets.append(before + len(text.decode(errors="ignore")))
            text += spelled[token][cut:]
            again -= len(spelled[token])
        before += len(answer.whole[place]) if place < len(answer.whole) else 0
    if chat:
        content = [one | {"top_logprobs": best} for one, best in zip(each, others, strict=True)]
        return {"content": content, "refusal": None}
    return {
        "tokens": [one["token"] for one in each],
        "token_logprobs": [one["logprob"] for one in each],
        "top_logprobs": [
            {e["token"]: e["logprob"] for e in (*best, one)} if one["logprob"] is not None else None
            for one, best in zip(each, others, strict=True)
        ],
        "text_offset": offsets,
    }


def _entry(spelled: Sequence[bytes], token: int, log_p: float | None, cut: int) -> dict[str, Any]:
    """Describe a token: its text without the first `cut` bytes, and its log p."""
    own = spelled[token][cut:]
    finite = None if log_p is None else max(log_p, -9999.0)  # JSON has no infinity
    return {"token": own.decode(errors="backslashreplace"), "logprob": finite, "bytes": list(own)}


def _usage(answers: Sequence[Answer], copies: int) -> dict[str, int]:
    """Count tokens; the prompt counts once for all of its answers."""
    prompt = sum(len(one.source) for answer in answers[::copies] for one in answer.openings)
    made = sum(len(some) for answer in answers for some in answer.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _event(value: Mapping[str, Any]) -> bytes:
    """Encode a server-sent event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
