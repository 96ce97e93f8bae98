"""Parts shared by all endpoints: models, threads, limits, and the running request."""

import asyncio
import base64
import hmac
import logging
import re
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect, Request

from pellucid.apps.cli.language import in_korean
from pellucid.apps.serve.batcher import Job
from pellucid.apps.serve.fields import RequestError, from_form, from_json
from pellucid.apps.serve.limits import Limits
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.recorder import Recorder
from pellucid.apps.serve.worker import BusyError, Worker
from pellucid.generation import SampleConfig, SearchConfig
from pellucid.system.language import Language
from pellucid.tasks.generation import Opening
from pellucid.tasks.passage import Passage

_log = logging.getLogger(__name__)
T = TypeVar("T")
Markup = Callable[[str, Callable[[str], Passage]], Passage]

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histograms' buckets, in seconds."""


@dataclass
class Service:
    """The state of a server that does not belong to a single request."""

    models: Mapping[str, Served]
    limits: Limits = field(default_factory=Limits)
    keys: Sequence[str] = ()
    """API keys; without any, everybody may send requests."""
    hosts: Sequence[str] = ()
    """Allowed names in the Host header; without any, all are."""
    stopping: bool = False

    def __post_init__(self) -> None:
        self.worker, self.recorder = Worker(self.limits.waiting), Recorder(self.limits)
        self.metrics = Metrics(self.worker)

    def model(self, name: str, task: str) -> Served:
        """Return a model by name, checked for a task.

        task: "generate", "embed", or a kind of task such as "fill" or "label". Raises
        `RequestError` if the model is unknown or cannot do the task.
        """
        kind = "fill" if task == "embed" else task
        each = ((one, one.pipeline) for one in self.models.values())
        fit = [one.name for one, own in each if kind in (own.kind, own.generates and "generate")]
        served = find_model(self.models, name, fit, f"none that can {task}")
        if served.name not in fit:
            raise RequestError(
                400, f"{served.name} cannot {task}: {served.pipeline.about}", "model"
            )
        return served


def find_model(
    models: Mapping[str, Served], name: str, named: Iterable[str], none: str = ""
) -> Served:
    """Return a model by name.

    Raises `RequestError` if it is not in `models`. The message lists the names `named`, or says
    `none` if there are none.
    """
    if name not in models:
        there = ", ".join(named) or none
        raise RequestError(404, f"there is no model of this name; there are: {there}", "model")
    return models[name]


def _password(credentials: str) -> str:
    """Return the password in the credentials of HTTP basic authentication, or ""."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


@dataclass
class Exchange:
    """One request while it is being answered."""

    service: Service
    request: Request
    body: dict[str, Any] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    waiting: deque[tuple[Served, Job]] = field(default_factory=deque)
    """Jobs that are not submitted yet, in order."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a job has ended or, with `Job.each`, its answer has grown."""
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def client(self) -> str:
        """Address of the client, or "" if it is not known; clients take turns."""
        peer = self.request.client
        return peer.host if peer else ""

    @property
    def language(self) -> Language:
        """The supported language that Accept-Language names first; "en" without one."""
        accepted = self.request.headers.get("accept-language", "").lower()
        first = re.search(r"\b(en|ko)\b", accepted)  # browsers send the best first
        return "ko" if first and first[0] == "ko" else "en"

    def said(self, error: str, language: Language | None = None) -> str:
        """Return an error's message in a language, by default in that of the request.

        A long one, which quotes the request, stays English: to compare it with every translation
        takes long.
        """
        return (
            in_korean(error) if (language or self.language) == "ko" and len(error) < 1000 else error
        )

    def authorise(self) -> None:
        """Raise `RequestError` if the server has API keys and the request holds none of them."""
        if not self.service.keys:
            return
        scheme, _, given = self.request.headers.get("authorization", "").partition(" ")
        key = given.strip() if scheme.lower() == "bearer" else self.body.get("api_key", "")
        if scheme.lower() == "basic":  # what a browser asks its user for
            key = _password(given.strip())
        # Every key is compared, each in constant time: how long it takes tells nothing.
        keys = [one.encode() for one in self.service.keys]
        if not isinstance(key, str) or not sum(hmac.compare_digest(key.encode(), k) for k in keys):
            raise RequestError(
                401, "the API key is missing or wrong; send Authorization: Bearer KEY"
            )

    async def read_body(self, forms: bool) -> None:
        """Read and parse the body.

        forms: whether it may be a form. Raises `RequestError` if it is too large, too slow,
        incomplete or invalid.
        Of a body that is too large, up to `Limits.discarded` bytes are read and discarded, because
        closing a connection with unread bytes resets it, and many clients would not see the answer.
        """
        limits, raw, length = self.service.limits, bytearray(), 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for chunk in self.request.stream():
                    length += len(chunk)
                    if length <= limits.body:
                        raw += chunk
                    elif length > limits.discarded:
                        break
        except TimeoutError:
            if length <= limits.body:
                raise RequestError(408, "the body did not arrive in time") from None
        except ClientDisconnect:
            raise RequestError(400, "the body ended early") from None
        if length > limits.body:
            raise RequestError(413, f"the body has more than {limits.body} bytes")
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        form = forms and kind == "application/x-www-form-urlencoded"
        if forms and kind == "multipart/form-data":
            raise RequestError(
                400,
                "the body is multipart/form-data; send application/json or "
                "application/x-www-form-urlencoded",
            )
        self.body = from_form(bytes(raw)) if form else from_json(bytes(raw))

    async def aside(self, function: Callable[[str], T], text: str) -> T:
        """Call a function with a text, on another thread from 2,000 characters on."""
        # A short text takes less time than another thread takes to begin.
        return function(text) if len(text) < 2000 else await asyncio.to_thread(function, text)

    async def openings(
        self, served: Served, text: str, markup: Markup | None = None
    ) -> tuple[Passage, list[Opening]]:
        """Split a text into pieces, and return them with their input tokens.

        markup: splits a text with markup, such as `markup.passage_of`. Raises `UserError` for a
        text that the model cannot answer, for example because a sentence is too long.
        """
        task = served.pipeline

        def read(text: str) -> tuple[Passage, list[Opening]]:
            passage = markup(text, task.passage) if markup else task.passage(text)
            return passage, task.openings(passage)

        return await self.aside(read, text)

    def job(
        self,
        served: Served,
        opening: Opening,
        config: SearchConfig | SampleConfig,
        *,
        number: int = 0,
        each: bool = False,
    ) -> Job:
        """Make the job of a piece and queue it for `submit`.

        config: settings of the search or of sampling; the answer is no longer than `Limits.tokens`.
        number, each: as in `Job`. The job of a piece without tokens is not queued: it is done at
        once.
        """
        config = replace(config, max_length=min(config.max_length, self.service.limits.tokens))
        read = served.pipeline.prompt_ids(opening.source)
        job = Job(
            read, config, number=number, client=self.client, each=each, beginning=opening.beginning
        )
        if read:
            self.waiting.append((served, job))
        else:
            job.done = job.finished = True
        return job

    def submit(self) -> None:
        """Submit queued jobs, up to the number that one request may have running.

        Raises `BusyError` if there is no room and no job of the request is running.
        """
        going, limits = sum(not job.done for job in self.jobs), self.service.limits
        while self.waiting and going < min(limits.texts, limits.waiting):
            served, job = self.waiting[0]
            try:
                self.service.worker.submit(served.batchers, job, self.changed)
            except BusyError:
                if going:
                    return
                raise
            self.jobs.append(job)
            self.waiting.popleft()
            going += 1

    async def answered(self) -> None:
        """Submit all jobs and wait for their end.

        Raises the exception of a job that failed, or `BusyError` as `submit` does.
        """
        while self.waiting or not all(job.done for job in self.jobs):
            self.submit()
            await self.change()
        for job in self.jobs:
            if job.error is not None:
                raise job.error

    async def change(self) -> None:
        """Wait until a job has ended, or the answer of one with `each` has grown.

        A change since the last call counts too: it then returns at once.
        """
        await self.changed.wait()
        self.changed.clear()

    @property
    def seconds(self) -> float:
        """Time since the request began, in seconds."""
        return asyncio.get_running_loop().time() - self.began

    def failed(self, error: Exception) -> None:
        """Log where an error occurred, without its message: it may contain a user's text."""
        frames = traceback.extract_tb(error.__traceback__)
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames))
        _log.error("%s at %s", type(error).__name__, where)


# counts, for Prometheus ---------------------------------------------------------------------------


class Metrics(Collector):
    """Counters, gauges and histograms of one server, in a Prometheus registry of its own."""

    def __init__(self, worker: Worker) -> None:
        self.registry, self.worker = CollectorRegistry(), worker
        self.requests = Counter(
            "pellucid_requests", "Requests answered.", ("path", "status"), registry=self.registry
        )
        self.seconds, self.first_token = (
            Histogram(name, about, ("path",), buckets=BOUNDS, registry=self.registry)
            for name, about in (
                ("pellucid_request_seconds", "Time to answer a request."),
                ("pellucid_first_token_seconds", "Time to the first text of a streamed answer."),
            )
        )
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the worker's counter and gauges, with their present values."""
        worker = self.worker
        yield CounterMetricFamily("pellucid_generated_tokens", "Tokens generated.", worker.tokens)
        yield GaugeMetricFamily("pellucid_running_rows", "Rows in the batches.", worker.running)
        yield GaugeMetricFamily("pellucid_waiting", "Inputs that wait.", worker.waiting)
