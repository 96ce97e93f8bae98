"""Make records of texts for the viewer, beside the requests that the model answers."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from pellucid.apps import view
from pellucid.apps.serve.fields import ModelName, RequestError, Seed, Temperature, about
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.worker import BusyError
from pellucid.apps.view.page import as_json, dumps
from pellucid.apps.view.record import Kind, Language
from pellucid.tasks.generation import Answer
from pellucid.tasks.passage import Passage

Beam = Annotated[int, Meta(ge=1, le=8)]
Place = Annotated[int, Meta(ge=1, le=10**6)]


class RecordRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /view/record."""

    model: ModelName
    text: Annotated[str, about("What the model reads.")]
    beam: Annotated[Beam | None, about("Hypotheses of the search; 1 is greedy.")] = None
    temperature: Annotated[
        Temperature, about("Sample the answer. 0, or without it: searched for.")
    ] = 0.0
    seed: Annotated[Seed, about("Random seed of sampling.")] = 0
    kind: Annotated[Kind | None, about("Attention to open on.")] = None
    layer: Annotated[Place | None, about("Layer to open on, from 1.")] = None
    head: Annotated[Place | None, about("Head to open on, from 1.")] = None
    language: Annotated[Language | None, about("Language to open in.")] = None


class Made(NamedTuple):
    """A record as JSON, with its title."""

    title: str
    json: str


def make_record(served: Served, asked: RecordRequest, limits: Limits) -> Made:
    """Make the record of a text as JSON for the viewer.

    The answer is sampled if a temperature above 0 is given, and else searched for. Raises
    `RequestError` or `UserError` for a text that is too long or does not fit the model.
    """
    pipeline = served.pipeline
    ids = (pipeline.token_ids if served.use == "fill" else pipeline.source.encode)(asked.text)
    if (count := len(ids)) > (most := limits.view_tokens):
        raise RequestError(
            400, f"text has {count} tokens, more than the {most} that are drawn; shorten it", "text"
        )
    answer, search, ends = None, None, True
    if pipeline.generates:
        own = pipeline.search
        length = min(own.max_length, limits.view_answer)
        search = replace(own, beam=asked.beam or own.beam, best=1, max_length=length)
        if asked.temperature:
            sampled = _sample(served, asked, length)
            answer, ends = sampled.tokens, sampled.finished
    drawn = view.attention(pipeline, asked.text, answer, search=search, ends=ends).record
    named = asked.kind, asked.layer, asked.head
    return Made(drawn.title, dumps(as_json(drawn, named, asked.language)))


def _sample(served: Served, asked: RecordRequest, length: int) -> Answer:
    """Sample an answer to a text."""
    decoder = served.batchers[0].decoder
    drawing = served.pipeline.configured(
        temperature=asked.temperature, seed=asked.seed, max_length=length, best=1
    )
    whole = Passage([asked.text], ["", ""])
    answer: Answer = drawing.answer_pieces([whole], [0], lambda: decoder)[0][0]
    return answer


class Recorder:
    """Makes records on a separate thread, one at a time, and at most one per client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._clients: set[str] = set()
        self._examples: dict[Served, Made] = {}
        self._pool = ThreadPoolExecutor(1, "pellucid-view")

    async def record(self, client: str, served: Served, asked: RecordRequest) -> Made:
        """Make a record; see `make_record`.

        Raises `BusyError` if the queue is full, or if an earlier record of the client is not made
        yet. A client that disconnects gives up its place if its record has not begun, and else
        keeps it until the record is made.
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
        """Return the record of a model's example, made by `record` at first and then kept."""
        if served not in self._examples:
            asked = RecordRequest(served.name, served.example)
            self._examples[served] = await self.record(client, served, asked)
        return self._examples[served]

    def stop(self) -> None:
        """Finish the records that were asked for, and end the thread."""
        self._pool.shutdown()
