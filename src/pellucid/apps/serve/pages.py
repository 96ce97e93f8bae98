"""The server's HTML pages: a form to try the models, the API, and the viewer."""

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from starlette.responses import HTMLResponse, Response

from pellucid.apps.serve.fields import RequestError, about, read
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.recorder import RecordRequest
from pellucid.apps.serve.service import Exchange, find_model
from pellucid.apps.view.page import live_page, script_of
from pellucid.apps.view.record import Language
from pellucid.core.errors import UserError


async def front(exchange: Exchange) -> Response:
    """GET /: return a page to try the models on."""
    return _own_page("page.html", exchange)


async def docs(exchange: Exchange) -> Response:
    """GET /docs: return the description of this API as a page."""
    return _own_page("docs.html", exchange)


def _own_page(name: str, exchange: Exchange) -> Response:
    """Return a page in the browser's language.

    A nonce allows only its own script to run.
    """
    nonce = secrets.token_urlsafe(16)
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    text = text.replace("NONCE", nonce).replace("LANGUAGE", exchange.language)
    headers = {"Content-Security-Policy": policy(f"nonce-{nonce}"), "Vary": "Accept-Language"}
    return HTMLResponse(text, headers=headers)


def policy(script: str) -> str:
    """Return the content security policy of a page with one script (nonce or hash)."""
    return (
        f"default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


# the viewer, live -------------------------------------------------------------------------------


class Address(Struct):
    """The query of GET /view."""

    model: Annotated[str, about("Name of the model; the first without it.")] = ""
    text: Annotated[str | None, about("What the page opens on; an example without it.")] = None
    language: Annotated[Language | None, about("Language to open in.")] = None


def _shown(exchange: Exchange) -> list[Served]:
    """Return the models for the viewer: those with an example text."""
    return [one for one in exchange.service.models.values() if one.example]


def _viewed(exchange: Exchange, name: str) -> Served:
    """Return a model for the viewer by name. Raises `RequestError` if there is none."""
    there = {one.name: one for one in _shown(exchange)}
    return find_model(there, name, there, "none that can be looked into")


async def record(exchange: Exchange) -> Response:
    """POST /view/record: return the JSON that the viewer shows of a text.

    It has the format of the record that `pellucid view` puts into its page. Each client can have
    one record made at a time.
    """
    asked = read(exchange.body, RecordRequest)
    served = _viewed(exchange, asked.model)
    made = await exchange.service.recorder.record(exchange.client, served, asked)
    return Response(made.json, media_type="application/json")


async def viewer(exchange: Exchange) -> Response:
    """GET /view: return the viewer page of a model; it shows the text, or else an example.

    If no record of the text can be made, it shows the example and an error message.
    """
    service, query = exchange.service, read(exchange.request.query_params, Address)
    there = _shown(exchange)
    served = _viewed(exchange, query.model or (there[0].name if there else ""))
    failed = opened = None
    if query.text is not None:
        asked = RecordRequest(served.name, query.text, language=query.language)
        try:
            opened = await service.recorder.record(exchange.client, served, asked)
        except (RequestError, UserError) as error:
            failed = exchange.said(str(error), query.language)
    if opened is None:
        opened = await service.recorder.example(exchange.client, served)
    live = {
        "record_url": "/view/record",
        "models": [
            {
                "id": one.name,
                "kind": "chat" if one.use == "words" else one.use,
                "languages": one.languages,
                "example": one.example,
                "beam": one.pipeline.search.beam if one.batchers else None,
            }
            for one in there
        ],
        "opened": {
            "model": served.name,
            "text": served.example if failed or query.text is None else query.text,
        },
        "error": failed,
    }
    whole = live_page(opened.title, opened.json, live)
    digest = base64.b64encode(hashlib.sha256(script_of(whole).encode()).digest()).decode()
    return HTMLResponse(whole, headers={"Content-Security-Policy": policy(f"sha256-{digest}")})
