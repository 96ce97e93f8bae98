"""The application: which endpoint answers what, and what happens round every request."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from pellucid import __version__
from pellucid.apps.serve import libretranslate, openai, pages, view
from pellucid.apps.serve.fields import Field, RequestError
from pellucid.apps.serve.fill import FILL, fill
from pellucid.apps.serve.recorder import RECORD
from pellucid.apps.serve.service import Exchange, Service
from pellucid.apps.serve.worker import BusyError, Ticket
from pellucid.core.errors import UserError

_log = logging.getLogger(__name__)

Work = Callable[[Exchange], Awaitable[Response]]
ErrorBody = Callable[[int, str, str | None], dict[str, Any]]


class Endpoint(NamedTuple):
    """One path: what answers it, and what the OpenAPI document says of it."""

    path: str
    methods: tuple[str, ...]
    work: Work
    fields: Sequence[Field] = ()
    """Of the body of a POST, of the address of a GET."""
    open: bool = False
    """Whether it needs no API key."""

    @property
    def forms(self) -> bool:
        """Whether a body may be a form."""
        return self.path in LIBRETRANSLATES


async def health(exchange: Exchange) -> Response:
    """GET /health: the process runs."""
    return JSONResponse({"status": "ok"})


async def ready(exchange: Exchange) -> Response:
    """GET /ready: it takes requests."""
    stopping = exchange.service.stopping
    return JSONResponse({"status": "stopping" if stopping else "ready"}, 503 if stopping else 200)


async def metrics(exchange: Exchange) -> Response:
    """GET /metrics: counters in Prometheus's format."""
    worker = exchange.service.worker
    page = exchange.service.metrics.text(
        {
            "pellucid_generated_tokens_total": ("counter", worker.tokens),
            "pellucid_running_rows": ("gauge", worker.running),
            "pellucid_waiting": ("gauge", worker.waiting),
        }
    )
    return PlainTextResponse(page, media_type="text/plain; version=0.0.4")


async def openapi(exchange: Exchange) -> Response:
    """GET /openapi.json: this API's description."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        about = " ".join((endpoint.work.__doc__ or "").split()).partition(": ")[2]
        about = about[:1].upper() + about[1:]
        for method in endpoint.methods:
            entry: dict[str, Any] = {
                "summary": about,
                "responses": {"200": {"description": "The answer"}, **_ERRORS},
            }
            parameters: list[dict[str, Any]] = [
                {"name": field.name, "in": "query", "schema": field.schema}
                for field in (endpoint.fields if method == "GET" else ())
            ]
            if "{name" in endpoint.path:
                parameters.append(
                    {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
                )
            if parameters:
                entry["parameters"] = parameters
            if method == "POST" and endpoint.fields:
                schema = {
                    "type": "object",
                    "properties": {field.name: field.schema for field in endpoint.fields},
                    "required": [field.name for field in endpoint.fields if field.required],
                }
                kinds = ["application/json", "application/x-www-form-urlencoded"]
                kinds = kinds if endpoint.forms else kinds[:1]
                content = {kind: {"schema": schema} for kind in kinds}
                entry["requestBody"] = {"required": True, "content": content}
            if not endpoint.open:
                entry["security"] = [{}, {"key": []}]
            paths.setdefault(endpoint.path, {})[method.lower()] = entry
    return JSONResponse(
        {
            "openapi": "3.1.0",
            "info": {"title": "Pellucid", "version": __version__},
            "paths": paths,
            "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        }
    )


_ERRORS = {
    str(status): {"description": about}
    for status, about in {
        400: "Wrong request", 401: "API key missing or wrong", 404: "No such model",
        408: "The body came too slowly", 413: "The body is too large", 429: "Too many wait",
        504: "The answer took too long",
    }.items()
}  # fmt: skip

PROBES = ("/health", "/ready", "/metrics")
MODELS = "/v1/models/"
OTHER_SITES = (b"cross-site", b"same-site")
"""What browsers say of a request that a page elsewhere makes."""
LIBRETRANSLATES = ("/translate", "/detect", "/languages")

ENDPOINTS = (
    Endpoint("/", ("GET",), pages.front, open=True),
    Endpoint("/view", ("GET",), view.page, view.ADDRESS),
    Endpoint("/view/record", ("POST",), view.record, RECORD),
    Endpoint("/health", ("GET",), health, open=True),
    Endpoint("/ready", ("GET",), ready, open=True),
    Endpoint("/metrics", ("GET",), metrics),
    Endpoint("/docs", ("GET",), pages.docs, open=True),
    Endpoint("/openapi.json", ("GET",), openapi, open=True),
    Endpoint("/v1/models", ("GET",), openai.models),
    Endpoint(f"{MODELS}{{name}}", ("GET",), openai.models),
    Endpoint("/v1/chat/completions", ("POST",), openai.chat, openai.CHAT),
    Endpoint("/v1/completions", ("POST",), openai.completions, openai.COMPLETIONS),
    Endpoint("/v1/embeddings", ("POST",), openai.embeddings, openai.EMBEDDINGS),
    Endpoint("/fill", ("POST",), fill, FILL),
    Endpoint("/translate", ("POST",), libretranslate.translate, libretranslate.TRANSLATE),
    Endpoint("/detect", ("POST",), libretranslate.detect_language, libretranslate.DETECT),
    Endpoint("/languages", ("GET",), libretranslate.languages),
)


class Application:
    """Answers requests: finds the endpoint, counts and logs; it is an ASGI application.

    A request's jobs are cancelled when it ends in any way, and it ends when its client goes
    (`connection` calls `leave`). The models' threads run from startup to shutdown.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.endpoints: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ENDPOINTS:
            methods = [*endpoint.methods, *(["HEAD"] if "GET" in endpoint.methods else [])]
            self.endpoints[endpoint.path] = dict.fromkeys(methods, endpoint)
        self._lifespan = Router(lifespan=self._run)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._lifespan(scope, receive, send)
            return
        began = asyncio.get_running_loop().time()
        tickets: list[Ticket] = []
        task, gone = asyncio.current_task(), False
        assert task is not None

        def leave() -> None:
            nonlocal gone
            gone = task.cancel()

        state = scope.get("state", {})
        scope["state"] = {**state, "began": began, "tickets": tickets, "leave": leave}
        path = _known_path(scope, self.endpoints)
        status = 499

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        exchange = Exchange(self.service, Request(scope, receive))
        try:
            response = self._refused(scope, path) or await answer(
                exchange, self.endpoints[path][scope["method"]]
            )
            await response(scope, receive, sent)
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
            status = 499
        except Exception as error:  # while it was sent: its beginning cannot be taken back
            exchange.failed(error)
        finally:
            for ticket in tickets:
                ticket.cancel()
            self._note(scope["method"], path, status, began, tickets)

    @asynccontextmanager
    async def _run(self, app: Router) -> AsyncIterator[None]:
        self.service.worker.start()
        yield
        self.service.stopping = True
        await asyncio.to_thread(self.service.recorder.stop)
        await asyncio.to_thread(self.service.worker.stop)

    def _refused(self, scope: Scope, path: str) -> Response | None:
        """Return the answer to a request that no endpoint gets."""
        headers = dict(scope["headers"])
        if not self._known_host(headers):
            status, message = 421, "this server goes by another name; see --host"
        elif path not in self.endpoints:
            status, message = 404, "there is no such path"
        elif scope["method"] not in self.endpoints[path]:
            status, message = 405, "this path has no such method"
        elif scope["method"] == "POST" and headers.get(b"sec-fetch-site") in OTHER_SITES:
            status, message = 403, "a page of another site may not ask this server"
        else:
            return None
        allowed = {"Allow": ", ".join(self.endpoints[path])} if status == 405 else None
        return Written(_error_body(path)(status, message, None), status, allowed)

    def _known_host(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the request calls the server by a name of its own.

        Without this, a page on the web could reach a server on this machine through a name of its
        own that leads here.
        """
        if not self.service.hosts:
            return True
        return _without_port(headers.get(b"host", b"").decode("latin-1")) in self.service.hosts

    def _note(
        self, method: str, path: str, status: int, began: float, tickets: Sequence[Ticket]
    ) -> None:
        """Count and log a request that has ended."""
        seconds = asyncio.get_running_loop().time() - began
        path = path if path in self.endpoints else "other"
        self.service.metrics.requests[path, status] += 1
        self.service.metrics.seconds.add(path, seconds)
        level = logging.DEBUG if path in PROBES else logging.INFO
        if not _log.isEnabledFor(level):
            return
        record = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": method if method in ("GET", "POST") else "other",
            "path": path,
            "status": status,
            "seconds": round(seconds, 4),
            "answers": len(tickets),
            "tokens": sum(len(ticket.job.answer) for ticket in tickets),
        }
        _log.log(level, "%s", json.dumps(record))


async def answer(exchange: Exchange, endpoint: Endpoint) -> Response:
    """Return an endpoint's answer, or why there is none."""
    limits = exchange.service.limits
    headers: dict[str, str] = {}
    try:
        if exchange.request.method == "POST":
            await exchange.read_body(endpoint.forms)
        if not endpoint.open:
            exchange.authorise()
        async with asyncio.timeout(limits.seconds):
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
    if status in (408, 413):
        headers["Connection"] = "close"  # the rest of the body is not read
    if status == 401 and endpoint.path == "/view":
        headers["WWW-Authenticate"] = 'Basic realm="Pellucid: any name, and an API key"'
    return Written(_error_body(endpoint.path)(status, message, field), status, headers)


def _known_path(scope: Scope, endpoints: Mapping[str, Any]) -> str:
    """Return a request's path; of one with a model's name in it, the endpoint's."""
    path: str = scope["path"]
    if path not in endpoints and path.startswith(MODELS):
        scope["path_params"] = {"name": path.removeprefix(MODELS)}
        return f"{MODELS}{{name}}"
    return path


def _error_body(path: str) -> ErrorBody:
    """Return how the errors of a path are written."""
    return libretranslate.error_body if path in LIBRETRANSLATES else openai.error_body


class Written(JSONResponse):
    """JSON in ASCII: a message may repeat what is no text."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return json.dumps(content).encode()


def _without_port(host: str) -> str:
    """Return a Host header without its port.

    >>> _without_port("[::1]:8000"), _without_port("localhost")
    ('[::1]', 'localhost')
    """
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdigit() else host.lower()
