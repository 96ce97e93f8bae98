"""POST /models/NAME: label texts, with the API of Hugging Face's inference servers."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import JSONResponse, Response

from pellucid.apps.serve.fields import RequestError, Texts, about, listed, read
from pellucid.apps.serve.service import Exchange


class Parameters(Struct):
    """Settings of the answer; `top_k` counts only for labels of whole texts."""

    top_k: Annotated[int, Meta(ge=1, le=1000, description="The most labels of a text.")] = 5
    function_to_apply: Annotated[
        Literal["softmax"], about("Scores are probabilities, which sum to 1 over all labels.")
    ] = "softmax"


class Classify(Struct):
    """The body of POST /models/NAME."""

    inputs: Annotated[Texts, about("A text, or several; a tab is between a pair of texts.")]
    parameters: Parameters | None = None


async def classify(exchange: Exchange) -> Response:
    """POST /models/NAME: return the likeliest labels of each text, or of its tokens."""
    asked = read(exchange.body, Classify)
    served = exchange.service.model(exchange.request.path_params["name"], "label")
    texts, limits = listed(asked.inputs), exchange.service.limits
    if not 0 < len(texts) <= limits.texts:
        message = f"expected 1 to {limits.texts} texts, got {len(texts)}"
        raise RequestError(400, message, "inputs")
    task, whole = served.pipeline, served.pipeline.model.config.labels == "text"
    most = (asked.parameters or Parameters()).top_k if whole else 1
    found = await exchange.service.worker.call(task.labels, texts, most)

    def shown(guess: Any) -> dict[str, Any]:
        if whole:
            return {"label": guess.token, "score": guess.p}
        return {"entity": guess.token, "score": guess.p, "word": guess.text}

    body = [[shown(guess) for token in tokens for guess in token] for tokens in found]
    for text, labels in zip(texts, body, strict=True):
        labels[0] |= served.unknown(text)
    # Hugging Face's has a list for each text; of tokens of one text alone the list itself.
    alone = isinstance(asked.inputs, str) and not whole
    return JSONResponse(body[0] if alone else body)
