"""The record of a text in a served model, made next to the requests that the model answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pellucid.apps import view
from pellucid.apps.serve.fields import MODEL, Field, RequestError, read
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.worker import BusyError
from pellucid.apps.view.page import as_json, dumps
from pellucid.apps.view.record import KINDS, select_cell
from pellucid.generation import SampleConfig

T = TypeVar("T")

RECORD = (
    MODEL,
    Field("text", "string", "What the model reads.", required=True),
    Field("answer", "string", "Show this answer, not the model's own; for [MASK], a token each."),
    Field("beam", "integer", "Hypotheses of the search; 1 is greedy.", low=1, high=8),
    Field(
        "temperature", "number", "Sample the answer. 0, or without it: searched for.", low=0, high=2
    ),
    Field("seed", "integer", "Random seed of sampling.", low=0, high=2**63 - 1),
    Field("mask", "integers", "Tokens to mask, by their places in the record's source."),
    Field("kind", "string", "Attention to open on: encoder, decoder or cross."),
    Field("layer", "integer", "Layer to open on, from 1.", low=1, high=1e6),
    Field("head", "integer", "Head to open on, from 1.", low=1, high=1e6),
    Field("language", "string", "Language to open in: en or ko."),
)


class Made(NamedTuple):
    """A record as JSON."""

    title: str
    json: str


def make_record(served: Served, asked: Mapping[str, Any], limits: Limits) -> Made:
    """Return the record of a text as `pellucid view` embeds it; `asked` has the fields of RECORD.

    Raises `RequestError` for what is too long or does not fit the model, `UserError` likewise.
    """
    _check_choices(asked)
    pipeline, text, target = served.apart, asked["text"], asked["answer"]
    fills = not pipeline.generates
    ids = (pipeline.token_ids if fills else pipeline.source.encode)(text)
    if len(ids) > limits.view_tokens:
        raise _too_long("text", len(ids), limits.view_tokens)
    if target is not None:
        answer = len(pipeline.target.encode(target))
        if answer > limits.view_answer:
            raise _too_long("answer", answer, limits.view_answer)
    source, search = text, None
    if fills:
        source = _masked(pipeline, ids, asked["mask"]) if asked["mask"] else text
    else:
        if asked["mask"]:
            raise RequestError(400, f"{served.name} fills no masks; leave mask out", "mask")
        own = pipeline.search
        length = min(own.max_length, limits.view_answer)
        search = replace(own, beam=asked["beam"] or own.beam, best=1, max_length=length)
        if target is None and asked["temperature"]:
            target = _sampled(served, text, asked, length)
    drawn = view.attention(pipeline, source, target, search=search).record
    cell = select_cell(drawn, asked["kind"], asked["layer"], asked["head"]) if drawn.maps else None
    return Made(drawn.title, dumps(as_json(drawn, cell, asked["language"])))


def _too_long(field: str, tokens: int, most: int) -> RequestError:
    return RequestError(
        400, f"{field} has {tokens} tokens, more than the {most} that are drawn; shorten it", field
    )


def _check_choices(asked: Mapping[str, Any]) -> None:
    for field, known in (("kind", tuple(KINDS)), ("language", ("en", "ko"))):
        if asked[field] not in (None, *known):
            raise RequestError(400, f"{field} must be {' or '.join(known)}", field)


def _masked(pipeline: Any, ids: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the tokens with those at these places masked, counted with the begin token."""
    masked = list(ids)
    for place in places:
        if not 1 <= place <= len(masked):
            raise RequestError(400, f"mask must hold places from 1 to {len(masked)}", "mask")
        masked[place - 1] = pipeline.model.config.mask_id
    return masked


def _sampled(served: Served, text: str, asked: Mapping[str, Any], length: int) -> tuple[int, ...]:
    """Return the tokens of an answer, drawn."""
    assert served.batcher is not None
    speaker = served.batcher.speaker
    config = SampleConfig(
        asked["temperature"], seed=asked["seed"] or 0, max_length=length,
        constraints=served.pipeline.search.constraints,
    )  # fmt: skip
    drawing = replace(served.pipeline, sampling=config)
    return tuple(drawing.generate_answers([text], decoder=lambda: speaker)[0][0].tokens)


class Recorder:
    """Makes records on a thread of its own: one at a time, and at most one for a client."""

    def __init__(self, most_waiting: int = 8) -> None:
        self.most_waiting = most_waiting
        self._clients: set[str] = set()
        self._examples: WeakKeyDictionary[Served, Made] = WeakKeyDictionary()
        self._pool = ThreadPoolExecutor(1, "pellucid-view")

    async def call(self, client: str, function: Callable[[], T]) -> T:
        """Return what a function returns. Raises `BusyError` while there is no room.

        A client that does not wait any more keeps its place until its record is made.
        """
        if client in self._clients:
            raise BusyError("a record is being made for you already; try again in a second")
        if len(self._clients) >= self.most_waiting:
            raise BusyError(f"{len(self._clients)} records wait already; try again in a second")
        loop = asyncio.get_running_loop()

        def leave(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._clients.discard, client)

        self._clients.add(client)
        future = self._pool.submit(function)
        future.add_done_callback(leave)
        return await asyncio.wrap_future(future)

    async def example(self, client: str, served: Served, limits: Limits) -> Made:
        """Return the record of a model's example, which is made once."""
        if served not in self._examples:
            asked = read({"model": served.name, "text": served.example}, RECORD)
            self._examples[served] = await self.call(
                client, lambda: make_record(served, asked, limits)
            )
        return self._examples[served]

    def stop(self) -> None:
        """Wait for what was begun, and end the thread."""
        self._pool.shutdown()
