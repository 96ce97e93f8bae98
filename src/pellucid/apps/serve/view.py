"""The live page: the record of a text, and the viewer that asks for it."""

from __future__ import annotations

import base64
import hashlib

from starlette.responses import HTMLResponse, Response

from pellucid.apps.serve.fields import Field, RequestError, read
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.recorder import RECORD, make_record
from pellucid.apps.serve.service import Exchange
from pellucid.apps.view.page import live_page, script_of
from pellucid.core.errors import UserError

ADDRESS = (
    Field("model", "string", "Name of the model; the first without it."),
    Field("text", "string", "What the page opens on; an example without it."),
    Field("language", "string", "Language to open in: en or ko."),
)


def _viewed(exchange: Exchange, name: str) -> Served:
    """Return a model by its name. Raises `RequestError` if it is unknown or reads no texts."""
    there = {one.name: one for one in exchange.service.models.values() if one.example}
    if name not in there:
        names = ", ".join(there) or "none that reads texts"
        raise RequestError(404, f"there is no model of this name; there are: {names}", "model")
    return there[name]


async def record(exchange: Exchange) -> Response:
    """POST /view/record: everything that the viewer draws of a text, as `pellucid view` embeds it.

    One record at a time for each client.
    """
    asked = read(exchange.body, RECORD)
    served = _viewed(exchange, asked["model"])
    limits = exchange.service.limits
    made = await exchange.service.recorder.call(
        exchange.client, lambda: make_record(served, asked, limits)
    )
    return Response(made.json, media_type="application/json")


async def page(exchange: Exchange) -> Response:
    """GET /view: the viewer, which opens on an example, or on ?text= in ?model=."""
    service, query = exchange.service, exchange.request.query_params
    there = [served for served in service.models.values() if served.example]
    served = _viewed(exchange, query.get("model") or (there[0].name if there else ""))
    failed = opened = None
    if "text" in query:
        asked = {name: query[name] for name in ("text", "language") if name in query}
        asked = read({**asked, "model": served.name}, RECORD)
        try:
            opened = await service.recorder.call(
                exchange.client, lambda: make_record(served, asked, service.limits)
            )
        except (RequestError, UserError) as error:
            failed = str(error)
    if opened is None:
        opened = await service.recorder.example(exchange.client, served, service.limits)
    live = {
        "record_url": "/view/record",
        "models": [
            {
                "id": one.name,
                "kind": one.use,
                "languages": one.languages,
                "example": one.example,
                "beam": one.beam,
            }
            for one in there
        ],
        "opened": {
            "model": served.name,
            "text": served.example if failed else query.get("text", served.example),
        },
        "error": failed,
    }
    whole = live_page(opened.title, opened.json, live)
    digest = base64.b64encode(hashlib.sha256(script_of(whole).encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )
    return HTMLResponse(whole, headers={"Content-Security-Policy": policy})
