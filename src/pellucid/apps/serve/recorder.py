"""The record of a text in a served model, made next to the requests that the model answers."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from pellucid.apps import view
from pellucid.apps.serve.fields import ModelName, RequestError, Seed, Temperature, about
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.worker import BusyError
from pellucid.apps.view.page import as_json, dumps
from pellucid.apps.view.record import Kind, Language, select_cell
from pellucid.tasks.generation import Answer
from pellucid.tasks.passage import Passage

Beam = Annotated[int, Meta(ge=1, le=8)]
Place = Annotated[int, Meta(ge=1, le=10**6)]


class RecordRequest(Struct):
    """The body of POST /view/record."""

    model: ModelName
    text: Annotated[str, about("What the model reads.")]
    answer: Annotated[
        str | None,
        about("Show this answer, not the model's own; for [MASK], a token each."),
    ] = None
    beam: Annotated[Beam | None, about("Hypotheses of the search; 1 is greedy.")] = None
    temperature: Annotated[
        Temperature, about("Sample the answer. 0, or without it: searched for.")
    ] = 0.0
    seed: Annotated[Seed, about("Random seed of sampling.")] = 0
    mask: Annotated[
        list[int], about("Tokens to mask, by their places in the record's source.")
    ] = []
    kind: Annotated[Kind | None, about("Attention to open on.")] = None
    layer: Annotated[Place | None, about("Layer to open on, from 1.")] = None
    head: Annotated[Place | None, about("Head to open on, from 1.")] = None
    language: Annotated[Language | None, about("Language to open in.")] = None


class Made(NamedTuple):
    """A record as JSON."""

    title: str
    json: str


def make_record(served: Served, asked: RecordRequest, limits: Limits) -> Made:
    """Return the record of a text as `pellucid view` embeds it.

    Raises `RequestError` for what is too long or does not fit the model, `UserError` likewise.
    """
    pipeline, text, target = served.pipeline, asked.text, asked.answer
    source: str | list[int]
    shown: str | tuple[int, ...] | None = target
    fills = not pipeline.generates
    ids = (pipeline.token_ids if fills else pipeline.source.encode)(text)
    if len(ids) > limits.view_tokens:
        raise _too_long("text", len(ids), limits.view_tokens)
    if target is not None:
        answer = len(pipeline.target.encode(target))
        if answer > limits.view_answer:
            raise _too_long("answer", answer, limits.view_answer)
    source, search, ends = text, None, True
    if fills:
        source = _masked(pipeline, ids, asked.mask) if asked.mask else text
    else:
        if asked.mask:
            raise RequestError(400, f"{served.name} fills no masks; leave mask out", "mask")
        own = pipeline.search
        length = min(own.max_length, limits.view_answer)
        search = replace(own, beam=asked.beam or own.beam, best=1, max_length=length)
        if target is None and asked.temperature:
            sampled = _sample(served, asked, length)
            shown, ends = sampled.tokens, sampled.finished
    drawn = view.attention(pipeline, source, shown, search=search, ends=ends).record
    cell = select_cell(drawn, asked.kind, asked.layer, asked.head) if drawn.maps else None
    return Made(drawn.title, dumps(as_json(drawn, cell, asked.language)))


def _too_long(field: str, tokens: int, most: int) -> RequestError:
    return RequestError(
        400, f"{field} has {tokens} tokens, more than the {most} that are drawn; shorten it", field
    )


def _masked(pipeline: Any, ids: Sequence[int], places: Sequence[int]) -> list[int]:
    """Return the tokens with those at these places masked, counted with the begin token."""
    masked = list(ids)
    for place in places:
        if not 1 <= place <= len(masked):
            raise RequestError(400, f"mask must hold places from 1 to {len(masked)}", "mask")
        masked[place - 1] = pipeline.model.config.mask_id
    return masked


def _sample(served: Served, asked: RecordRequest, length: int) -> Answer:
    """Sample an answer."""
    decoder = served.batchers[0].decoder
    drawing = served.pipeline.configured(
        temperature=asked.temperature, seed=asked.seed, max_length=length, best=1
    )
    whole = Passage([asked.text], ["", ""])
    answer: Answer = drawing.answer_pieces([whole], [0], lambda: decoder)[0][0]
    return answer


class Recorder:
    """Makes records on a separate thread: one at a time, and at most one for a client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: set[str] = set()
        self._examples: dict[Served, Made] = {}
        self._pool = ThreadPoolExecutor(1, "pellucid-view")

    async def record(self, client: str, served: Served, asked: RecordRequest) -> Made:
        """Return what `make_record` does. Raises `BusyError` while there is no room.

        A client that does not wait any more keeps its place until its record is made.
        """
        if client in self._clients:
            raise BusyError("a record is being made for you already; try again in a second")
        if len(self._clients) >= self._limits.records:
            raise BusyError(f"{len(self._clients)} records wait already; try again in a second")
        self._clients.add(client)
        future = self._pool.submit(make_record, served, asked, self._limits)
        future.add_done_callback(lambda _: self._clients.discard(client))
        return await asyncio.wrap_future(future)

    async def example(self, client: str, served: Served) -> Made:
        """Return the record of a model's example, which is made once."""
        if served not in self._examples:
            asked = RecordRequest(served.name, served.example)
            self._examples[served] = await self.record(client, served, asked)
        return self._examples[served]

    def stop(self) -> None:
        """Wait for what was begun, and end the thread."""
        self._pool.shutdown()
