"""LibreTranslate's endpoints: translate, languages, detect."""

from typing import Annotated, Any, Literal

from msgspec import Struct
from starlette.responses import JSONResponse, Response

from pellucid.apps.serve.fields import RequestError, Texts, about, listed, read
from pellucid.apps.serve.languages import LANGUAGES, detect
from pellucid.apps.serve.markup import escaped, passage_of, shown
from pellucid.apps.serve.models import Served
from pellucid.apps.serve.service import Exchange

Key = Annotated[str, about("API key, if the server wants one.")]


class Translate(Struct):
    """The body of POST /translate."""

    q: Annotated[Texts, about("Text to translate, or several.")]
    source: Annotated[str, about("Code of its language, or auto.")]
    target: Annotated[str, about("Code of the language wanted.")]
    format: Annotated[Literal["text", "html"], about("text, or html: its tags are kept.")] = "text"
    model: Annotated[str, about("Name of the model; the first without it. An addition.")] = ""
    api_key: Key = ""


class Detect(Struct):
    """The body of POST /detect."""

    q: Annotated[str, about("Text to look at.")]
    api_key: Key = ""


def _translators(exchange: Exchange) -> dict[tuple[str, str], Served]:
    """Return the first model of each pair of languages."""
    found: dict[tuple[str, str], Served] = {}
    for served in exchange.service.models.values():
        if served.languages is not None:
            found.setdefault(served.languages, served)
    return found


async def languages(exchange: Exchange) -> Response:
    """GET /languages: list the languages, and those that each is translated into."""
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
    """POST /detect: guess the language of a text, among those of the models that translate."""
    known = {code for pair in _translators(exchange) for code in pair}
    return JSONResponse(detect(read(exchange.body, Detect).q, known))


async def translate(exchange: Exchange) -> Response:
    """POST /translate: translate texts into another language."""
    asked = read(exchange.body, Translate)
    texts = listed(asked.q)
    if len(texts) > exchange.service.limits.texts:
        raise RequestError(400, f"at most {exchange.service.limits.texts} texts in q", "q")
    html, auto = asked.format == "html", asked.source == "auto"
    seen = [await exchange.aside(shown, text) for text in texts] if html else texts
    known = {source for source, into in _translators(exchange) if into == asked.target}
    found = [one for text in seen for one in detect(text, known)[:1]] if auto else []
    sources = [one["language"] for one in found] or [asked.source] * len(texts)
    models = [_translator(exchange, source, asked.target, asked.model) for source in sources]
    pieces = [
        await exchange.openings(served, text, passage_of if html else None)
        for served, text in zip(models, texts, strict=True)
    ]
    jobs = [
        [exchange.job(served, opening, served.pipeline.search) for opening in openings]
        for served, (_, openings) in zip(models, pieces, strict=True)
    ]
    await exchange.answered()
    translated = []
    for served, (passage, openings), own in zip(models, pieces, jobs, strict=True):
        pairs = zip(openings, own, strict=True)
        answers = [served.text(opening, job.answer) for opening, job in pairs]
        translated.append(passage.joined([escaped(one) for one in answers] if html else answers))
    alone = isinstance(asked.q, str)
    unknown = [served.pipeline.unread(text) for served, text in zip(models, seen, strict=True)]
    answer: dict[str, Any] = {"translatedText": translated[0] if alone else translated}
    if any(unknown):
        answer["unknown"] = unknown[0] if alone else unknown
    if auto:
        answer["detectedLanguage"] = found[0] if alone else found
    return JSONResponse(answer)


def _translator(exchange: Exchange, source: str, target: str, name: str) -> Served:
    """Return the model for a pair of languages, by its name if one is given.

    Raises `RequestError` if there is none.
    """
    named = exchange.service.models.get(name)
    if named is not None and named.languages == (source, target):
        return named
    pairs = _translators(exchange)
    if name:
        raise RequestError(400, f"no model {name} translates {source} to {target}", "model")
    if (source, target) not in pairs:
        there = ", ".join(f"{a} to {b}" for a, b in pairs) or "no model that translates"
        raise RequestError(400, f"cannot translate between these languages; there is: {there}")
    return pairs[source, target]
