"""Fields of requests as structs: parsed, checked, and described by JSON Schema."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T", bound=Struct)


def about(text: str) -> Meta:
    """Make the annotation that describes a field in the OpenAPI document."""
    return Meta(description=text)


ModelName = Annotated[str, about("Name of the model, from /v1/models.")]
Texts = str | list[str]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def listed(texts: Texts) -> list[str]:
    """Return a field of texts as a list; it may be a single text."""
    return [texts] if isinstance(texts, str) else texts


class RequestError(Exception):
    """A request that cannot be answered: HTTP status, message, and the field at fault."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field


def read(values: Mapping[str, Any], kind: type[T]) -> T:
    """Convert the fields of a request to a struct of the class `kind`.

    null counts as absent, and unknown fields are ignored unless the struct forbids them. Raises
    `RequestError` for a field that is missing, forbidden, of another type, or out of range.
    """
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        found = re.search(r"\$\.(\w+)", str(error)) or re.search("field `(.+?)`", str(error))
        raise RequestError(400, str(error), found and found[1]) from None


def from_json(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises `RequestError` for anything else."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise RequestError(400, f"the body must be a JSON object: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError(400, "the body is not JSON in UTF-8") from None


def from_form(raw: bytes) -> dict[str, Any]:
    """Parse the fields of a URL-encoded form; a field that occurs several times becomes a list.

    Raises `RequestError` for a body that is not UTF-8 or has more than 1,000 fields. Any other text
    counts as a form.
    """
    try:
        body = parse_qs(
            raw.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
    except ValueError:
        raise RequestError(400, "the body is not a form in UTF-8") from None
    return {name: values if len(values) > 1 else values[0] for name, values in body.items()}
