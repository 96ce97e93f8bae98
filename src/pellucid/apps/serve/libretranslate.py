"""LibreTranslate's endpoints: translate, languages, detect."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from pellucid.apps.serve.fields import Field, RequestError, read
from pellucid.apps.serve.languages import LANGUAGES, detect
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.service import Exchange
from pellucid.tasks import TooLongError

TRANSLATE = (
    Field("q", "text or list", "Text to translate, or several.", required=True),
    Field("source", "string", "Code of its language, or auto.", required=True),
    Field("target", "string", "Code of the language wanted.", required=True),
    Field("format", "string", "text; html is not supported."),
    Field("api_key", "string", "API key, if the server wants one."),
)
DETECT = (
    Field("q", "string", "Text to look at.", required=True),
    Field("api_key", "string", "API key, if the server wants one."),
)


def error_body(status: int, message: str, field: str | None) -> dict[str, Any]:
    """Return an error as LibreTranslate writes it."""
    return {"error": message}


def _translators(exchange: Exchange) -> dict[tuple[str, str], Served]:
    """Return the first model of each pair of languages."""
    found: dict[tuple[str, str], Served] = {}
    for served in exchange.service.models.values():
        if served.languages is not None:
            found.setdefault(served.languages, served)
    return found


async def languages(exchange: Exchange) -> Response:
    """GET /languages: what can be translated into what."""
    pairs = _translators(exchange)
    codes = sorted({code for pair in pairs for code in pair})
    return JSONResponse(
        [
            {
                "code": code,
                "name": LANGUAGES[code].name,
                "targets": sorted(into for source, into in pairs if source == code),
            }
            for code in codes
        ]
    )


async def detect_language(exchange: Exchange) -> Response:
    """POST /detect: the languages that a text may be written in."""
    text = read(exchange.body, DETECT)["q"]
    return JSONResponse(_detected(exchange, text))


def _detected(exchange: Exchange, text: str) -> list[dict[str, Any]]:
    sources = {source for source, _ in _translators(exchange)}
    targets = {target for _, target in _translators(exchange)}
    found = detect(text, sources | targets)
    return [{"confidence": one.confidence, "language": one.code} for one in found]


async def translate(exchange: Exchange) -> Response:
    """POST /translate: texts in another language."""
    asked = read(exchange.body, TRANSLATE)
    if asked["format"] not in (None, "text"):
        raise RequestError(400, "format must be text", "format")
    texts = [asked["q"]] if isinstance(asked["q"], str) else asked["q"]
    if len(texts) > exchange.service.limits.texts:
        raise RequestError(400, f"at most {exchange.service.limits.texts} texts in q", "q")
    found = [_detected(exchange, text)[:1] if asked["source"] == "auto" else [] for text in texts]
    sources = [one[0]["language"] if one else asked["source"] for one in found]
    models = [_translator(exchange, source, asked["target"]) for source in sources]
    pieces = [
        await _pieces(exchange, served, text) for served, text in zip(models, texts, strict=True)
    ]
    tickets = [
        [
            exchange.submit(served, tokens, served.pipeline.search) if tokens else None
            for tokens in rows
        ]
        for served, rows in zip(models, pieces, strict=True)
    ]
    translated = []
    for served, rows, row_tickets in zip(models, pieces, tickets, strict=True):
        jobs = [await ticket.end() if ticket else None for ticket in row_tickets]
        parts = [
            served.text(tokens, job.answer) if job else ""
            for tokens, job in zip(rows, jobs, strict=True)
        ]
        translated.append(" ".join(parts))
    alone = isinstance(asked["q"], str)
    answer: dict[str, Any] = {"translatedText": translated[0] if alone else translated}
    if asked["source"] == "auto":
        detected = [one[0] for one in found]
        answer["detectedLanguage"] = detected[0] if alone else detected
    return JSONResponse(answer)


def _translator(exchange: Exchange, source: str, target: str) -> Served:
    pairs = _translators(exchange)
    if (source, target) not in pairs:
        there = ", ".join(f"{a} to {b}" for a, b in pairs) or "no model that translates"
        raise RequestError(400, f"cannot translate between these languages; there is: {there}")
    return pairs[source, target]


async def _pieces(exchange: Exchange, served: Served, text: str) -> list[list[int]]:
    """Return the tokens of a text, in pieces that end with a sentence if it is too long."""
    try:
        parts = served.pipeline.split_sentences(text)
    except TooLongError:
        raise RequestError(
            400, f"a sentence has more than the {served.pipeline.max_source_length} tokens that "
            "the model can read; split it", "q",
        ) from None  # fmt: skip
    return [await exchange.encode(served, part) for part in parts]
