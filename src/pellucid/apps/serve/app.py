"""The ASGI application: its endpoints, errors, limits and log."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from pellucid import __version__
from pellucid.apps.serve import labels, libretranslate, openai, pages
from pellucid.apps.serve.fields import ModelName, RequestError, about, read
from pellucid.apps.serve.recorder import RecordRequest
from pellucid.apps.serve.service import Exchange, Service
from pellucid.apps.serve.worker import BusyError
from pellucid.core.errors import UserError

_log = logging.getLogger(__name__)

Work = Callable[[Exchange], Awaitable[Response]]


class Endpoint(NamedTuple):
    """One path of the API, the function that answers it, and its fields for OpenAPI."""

    path: str
    method: str
    work: Work
    fields: type[Struct] | None = None
    """Fields of a POST's body, or of a GET's query string."""
    open: bool = False
    """Whether no API key is needed."""


class Fill(Struct):
    """The body of POST /fill."""

    model: ModelName
    text: Annotated[str, about("A text with [MASK] in it; each is one token.")]
    best: Annotated[int, Meta(ge=1, le=20, description="How many guesses for each mask.")] = 5


async def fill(exchange: Exchange) -> Response:
    """POST /fill: return the likeliest tokens for each [MASK] in a text."""
    asked = read(exchange.body, Fill)
    served = exchange.service.model(asked.model, "fill")
    guesses = served.pipeline.guesses
    masks = await exchange.service.worker.call(guesses, asked.text, asked.best)
    found = [[guess._asdict() for guess in mask] for mask in masks]
    return JSONResponse({"model": served.name, "masks": found, **served.unknown(asked.text)})


async def health(exchange: Exchange) -> Response:
    """GET /health: check that the process runs."""
    return JSONResponse({"status": "ok"})


async def ready(exchange: Exchange) -> Response:
    """GET /ready: check that the server takes requests."""
    stopping = exchange.service.stopping
    return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)


async def metrics(exchange: Exchange) -> Response:
    """GET /metrics: return counters, gauges and histograms in Prometheus's format."""
    page = generate_latest(exchange.service.metrics.registry)
    return PlainTextResponse(page, media_type="text/plain; version=0.0.4")


async def openapi(exchange: Exchange) -> Response:
    """GET /openapi.json: return the description of this API."""
    document = json.loads(OPENAPI.read_text(encoding="utf-8"))
    document["info"]["version"] = __version__
    document["x-keys"] = bool(exchange.service.keys)
    return JSONResponse(document)


MODELS, LABELS = "/v1/models/", "/models/"

PROBES = ("/health", "/ready", "/metrics")
LIBRETRANSLATES = ("/translate", "/detect", "/languages")
OPENAPI = Path(__file__).with_name("openapi.json")
"""The API's description, written by scripts/openapi.py from `ENDPOINTS`."""

ENDPOINTS = (
    Endpoint("/", "GET", pages.front, open=True),
    Endpoint("/view", "GET", pages.viewer, pages.Address),
    Endpoint("/view/record", "POST", pages.record, RecordRequest),
    Endpoint("/health", "GET", health, open=True),
    Endpoint("/ready", "GET", ready, open=True),
    Endpoint("/metrics", "GET", metrics),
    Endpoint("/docs", "GET", pages.docs, open=True),
    Endpoint("/openapi.json", "GET", openapi, open=True),
    Endpoint("/v1/models", "GET", openai.models),
    Endpoint(f"{MODELS}{{name}}", "GET", openai.models),
    Endpoint("/v1/chat/completions", "POST", openai.chat, openai.Chat),
    Endpoint("/v1/completions", "POST", openai.completions, openai.Completions),
    Endpoint("/v1/embeddings", "POST", openai.embeddings, openai.Embeddings),
    Endpoint("/fill", "POST", fill, Fill),
    Endpoint(f"{LABELS}{{name}}", "POST", labels.classify, labels.Classify),
    Endpoint("/translate", "POST", libretranslate.translate, libretranslate.Translate),
    Endpoint("/detect", "POST", libretranslate.detect_language, libretranslate.Detect),
    Endpoint("/languages", "GET", libretranslate.languages),
)


class Application:
    """ASGI application: find the endpoint of a request, answer, count and log it.

    The jobs of a request are cancelled when it ends in any way, and it ends when its client
    disconnects (`connection` calls `leave`). The models' threads run from startup to shutdown.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.endpoints = {endpoint.path: endpoint for endpoint in ENDPOINTS}
        self._lifespan = Router(lifespan=self._run)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or handle startup and shutdown."""
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        task, gone = asyncio.current_task(), False
        assert task is not None

        def leave() -> None:
            nonlocal gone
            gone = task.cancel()

        scope["state"]["leave"] = leave
        path = _known_path(scope, self.endpoints)
        status = 499

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        exchange = Exchange(self.service, Request(scope, receive))
        try:
            response = await self._answer(exchange, path)
            await response(scope, receive, sent)
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
            status = 499
        except Exception as error:  # while it was sent: its beginning cannot be taken back
            exchange.failed(error)
        finally:
            for job in exchange.jobs:
                job.cancel()
            self._note(exchange, path, status)

    @asynccontextmanager
    async def _run(self, app: Router) -> AsyncIterator[None]:
        """Run the models' threads until the server shuts down."""
        self.service.worker.start()
        yield
        await asyncio.to_thread(self.service.recorder.stop)
        await asyncio.to_thread(self.service.worker.stop)

    async def _answer(self, exchange: Exchange, path: str) -> Response:
        """Return the response of an endpoint; an error in the format of its API."""
        headers: dict[str, str] = {}
        try:
            endpoint = self._endpoint(exchange.request, path)
            if endpoint.method == "POST":
                await exchange.read_body(forms=path in LIBRETRANSLATES)
            if not endpoint.open:
                exchange.authorise()
            async with asyncio.timeout(self.service.limits.seconds):
                return await endpoint.work(exchange)
        except RequestError as error:
            status, message, field = error.status, error.message, error.field
        except UserError as error:
            status, message, field = 400, str(error), None
        except BusyError as error:
            status, message, field = 429, str(error), None
            headers["Retry-After"] = "1"
        except TimeoutError:
            status, message, field = 504, "the answer took too long", None
        except Exception as error:
            exchange.failed(error)
            status, message, field = 500, "the server failed; its log says where", None
        if status == 405:
            headers["Allow"] = "POST" if self.endpoints[path].method == "POST" else "GET, HEAD"
        if status in (408, 413):
            headers["Connection"] = "close"  # the rest of the body is not read
        if status == 401 and path == "/view":
            headers["WWW-Authenticate"] = 'Basic realm="Pellucid: any name, and an API key"'
        theirs, message = path in LIBRETRANSLATES, exchange.said(message)
        body = {"error": message} if theirs else openai.error_body(status, message, field)
        return JSONResponse(body, status, headers)

    def _endpoint(self, request: Request, path: str) -> Endpoint:
        """Return the endpoint of a request. Raises `RequestError` if none may answer it."""
        hosts, endpoint = request.headers.getlist("host"), self.endpoints.get(path)
        whole = len(hosts) == 1 or (not hosts and request.scope["http_version"] != "1.1")
        if not whole:  # RFC 9112, 3.2
            raise RequestError(400, f"a request has one Host header, this one {len(hosts)}")
        if self.service.hosts and _without_port("".join(hosts)) not in self.service.hosts:
            # A page on the web could reach a server on this machine through a name of its own.
            raise RequestError(421, "this server goes by another name; see `host`")
        if endpoint is None:
            raise RequestError(404, "there is no such path")
        if request.method.replace("HEAD", "GET") != endpoint.method:
            raise RequestError(405, "this path has no such method")
        if request.method == "POST" and _of_another_site(request.headers):
            raise RequestError(403, "a page of another site may not ask this server")
        return endpoint

    def _note(self, exchange: Exchange, path: str, status: int) -> None:
        """Count and log a request that has ended."""
        seconds, method = exchange.seconds, exchange.request.method
        path = path if path in self.endpoints else "other"
        self.service.metrics.requests.labels(path, status).inc()
        self.service.metrics.seconds.labels(path).observe(seconds)
        level = logging.DEBUG if path in PROBES else logging.INFO
        if not _log.isEnabledFor(level):
            return
        record = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": method if method in ("GET", "POST") else "other",
            "path": path,
            "status": status,
            "seconds": round(seconds, 4),
            "answers": len(exchange.jobs),
            "tokens": sum(len(job.answer) for job in exchange.jobs),
        }
        _log.log(level, "%s", json.dumps(record))


def _known_path(scope: Scope, endpoints: Mapping[str, Any]) -> str:
    """Return the path of a request; a model's name in it becomes a path parameter in `scope`."""
    path: str = scope["path"]
    for before in (MODELS, LABELS):
        if path not in endpoints and path.startswith(before):
            scope["path_params"] = {"name": path.removeprefix(before)}
            return f"{before}{{name}}"
    return path


def _of_another_site(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sent the request from a page of another site.

    The header Sec-Fetch-Site states that. Browsers leave it out for plain HTTP addresses other than
    this machine's, and old browsers always do; then Origin must be the address of this server.

    >>> _of_another_site({"sec-fetch-site": "same-origin"}), _of_another_site({"host": "a:80"})
    (False, False)
    >>> _of_another_site({"origin": "http://b", "host": "a:80"})
    True
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site in ("cross-site", "same-site")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


def _without_port(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> _without_port("[::1]:8000"), _without_port("localhost")
    ('[::1]', 'localhost')
    """
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdigit() else host.lower()
