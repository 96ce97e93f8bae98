"""Pellucid's own endpoint for models that fill masks."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from pellucid.apps.serve.fields import MODEL, Field, read
from pellucid.apps.serve.service import Exchange

FILL = (
    MODEL,
    Field("text", "string", "A text with [MASK] in it; each is one token.", required=True),
    Field("best", "integer", "How many guesses for each mask; 5 without it.", low=1, high=20),
)


async def fill(exchange: Exchange) -> Response:
    """POST /fill: the likeliest tokens for each [MASK] in a text."""
    asked = read(exchange.body, FILL)
    served = exchange.service.model(asked["model"], "fill")
    masks = await exchange.service.worker.call(
        lambda: served.pipeline.guesses(asked["text"], asked["best"] or 5)
    )
    return JSONResponse(
        {
            "model": served.name,
            "masks": [[guess._asdict() for guess in guesses] for guesses in masks],
        }
    )
