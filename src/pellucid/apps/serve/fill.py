"""Pellucid's own endpoint for models that fill masks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import JSONResponse, Response

from pellucid.apps.serve.fields import ModelName, about, read
from pellucid.apps.serve.service import Exchange


class Fill(Struct):
    """The body of POST /fill."""

    model: ModelName
    text: Annotated[str, about("A text with [MASK] in it; each is one token.")]
    best: Annotated[int, Meta(ge=1, le=20, description="How many guesses for each mask.")] = 5


async def fill(exchange: Exchange) -> Response:
    """POST /fill: the likeliest tokens for each [MASK] in a text."""
    asked = read(exchange.body, Fill)
    served = exchange.service.model(asked.model, "fill")
    masks = await exchange.service.worker.call(
        lambda: served.pipeline.guesses(asked.text, asked.best)
    )
    return JSONResponse(
        {
            "model": served.name,
            "masks": [[guess._asdict() for guess in guesses] for guesses in masks],
        }
    )
