"""Write the description of the server's API, src/pellucid/apps/serve/openapi.json.

    python scripts/openapi.py

A test fails until this is done after a change of an endpoint or of its fields. In the examples, the
page /docs replaces NAME, TEXT, SOURCE and TARGET by a served model and a text for it; `x-use` lists
the uses of the models that an endpoint works with (`use` in /v1/models).
"""

import json
from typing import Any

import msgspec

from pellucid.apps.serve.app import ENDPOINTS, LIBRETRANSLATES, OPENAPI, Endpoint

GENERATE = ["translate", "chat", "pronounce", "words", "continue"]
EXAMPLES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "/view/record": ([*GENERATE, "fill"], {"model": "NAME", "text": "TEXT"}),
    "/v1/chat/completions": (
        GENERATE,
        {"model": "NAME", "messages": [{"role": "user", "content": "TEXT"}]},
    ),
    "/v1/completions": (GENERATE, {"model": "NAME", "prompt": "TEXT"}),
    "/v1/embeddings": (["fill"], {"model": "NAME", "input": "TEXT"}),
    "/models/{name}": (["label"], {"inputs": "TEXT"}),
    "/fill": (["fill"], {"model": "NAME", "text": "TEXT"}),
    "/translate": (["translate"], {"q": "TEXT", "source": "SOURCE", "target": "TARGET"}),
    "/detect": (["translate"], {"q": "TEXT"}),
}
FORM = "application/x-www-form-urlencoded"


def document() -> dict[str, Any]:
    """Make the OpenAPI document, without the version."""
    _, known = msgspec.json.schema_components(
        [endpoint.fields for endpoint in ENDPOINTS if endpoint.fields],
        ref_template="#/components/schemas/{name}",
    )
    paths = {one.path: {one.method.lower(): operation(one, known)} for one in ENDPOINTS}
    keys = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pellucid", "version": ""},
        "paths": paths,
        "components": {"schemas": known, "securitySchemes": keys},
    }


def operation(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    """Describe an endpoint for the document; known: the schemas by name."""
    summary = " ".join((endpoint.work.__doc__ or "").split()).partition(": ")[2]
    entry: dict[str, Any] = {
        "summary": summary[:1].upper() + summary[1:],
        "responses": {"200": {"description": "The answer"}, **errors(endpoint)},
    }
    name = endpoint.fields.__name__ if endpoint.fields else ""
    if endpoint.method == "POST":
        uses, body = EXAMPLES[endpoint.path]
        content = {"schema": {"$ref": f"#/components/schemas/{name}"}, "example": body}
        kinds = ["application/json", *([FORM] if endpoint.path in LIBRETRANSLATES else [])]
        entry["requestBody"] = {"required": True, "content": dict.fromkeys(kinds, content)}
        entry["x-use"] = uses
    elif name:
        entry["parameters"] = [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in known[name]["properties"].items()
        ]
    if "{name" in endpoint.path:
        place = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        entry["parameters"] = [place]
    if not endpoint.open:
        entry["security"] = [{}, {"key": []}]
    return entry


def errors(endpoint: Endpoint) -> dict[str, Any]:
    """Describe the error responses that an endpoint can give."""
    given = {401: "API key missing or wrong"} if not endpoint.open else {}
    if endpoint.path == "/ready":
        given[503] = "It stops"
    if endpoint.fields:
        given[400] = "Wrong request"
    if "model" in getattr(endpoint.fields, "__struct_fields__", ()) or "{name" in endpoint.path:
        given[404] = "No such model"
    if endpoint.method == "POST":
        given |= {408: "The body came too slowly", 413: "The body is too large"}
    if endpoint.fields:
        given |= {429: "Too many wait", 504: "The answer took too long"}
    return {str(status): {"description": given[status]} for status in sorted(given)}


def written() -> str:
    """Return the text of openapi.json."""
    return json.dumps(document(), ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    OPENAPI.write_text(written(), encoding="utf-8")
