"""The server's own pages: one to type into, and one that shows the API."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from starlette.responses import HTMLResponse, Response

from pellucid.apps.serve.service import Exchange
from pellucid.apps.view.record import Language


async def front(exchange: Exchange) -> Response:
    """GET /: a page to translate, chat, pronounce and fill masks with."""
    return _own_page("page.html", exchange)


async def docs(exchange: Exchange) -> Response:
    """GET /docs: the OpenAPI document as a page."""
    return _own_page("docs.html", exchange)


def _own_page(name: str, exchange: Exchange) -> Response:
    """Return a page of ours in the browser's language; only its own script runs."""
    nonce = secrets.token_urlsafe(16)
    language = preferred(exchange.request.headers.get("accept-language", ""))
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    text = text.replace("NONCE", nonce).replace("LANGUAGE", language)
    headers = {"Content-Security-Policy": policy(f"nonce-{nonce}"), "Vary": "Accept-Language"}
    return HTMLResponse(text, headers=headers)


def policy(script: str) -> str:
    """Return the content security policy of a page with one script, by its nonce or hash."""
    return (
        f"default-src 'none'; script-src '{script}'; style-src 'unsafe-inline'; "
        "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )


def preferred(accepted: str) -> Language:
    """Return the first language of ours in an Accept-Language header.

    >>> preferred("ko-KR,ko;q=0.9,en;q=0.8"), preferred("en, ko;q=0.5"), preferred("fr")
    ('ko', 'en', 'en')
    """
    first = re.search(r"\b(en|ko)\b", accepted.lower())  # browsers send the best first
    return "ko" if first and first[0] == "ko" else "en"
