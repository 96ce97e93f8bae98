"""Fields of request bodies: what each may hold, and the error when it holds something else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl


class RequestError(Exception):
    """A request that cannot be answered: status, message, and the field that it is about."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field


class Field(NamedTuple):
    """A field of a body; null counts as absent."""

    name: str
    type: str
    """JSON Schema's name of its type; "text or list": a string, or strings in a list."""
    about: str
    required: bool = False
    low: float | None = None
    high: float | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        text = {"type": "string"}
        limits = {"minimum": self.low, "maximum": self.high}
        kinds: Mapping[str, Any] = {
            "text or list": {"anyOf": [text, {"type": "array", "items": text}]},
            "array": {"type": "array", "items": {"type": "object"}},
            "integers": {"type": "array", "items": {"type": "integer"}},
        }
        kind = kinds.get(self.type, {"type": self.type})
        return {
            **kind,
            "description": self.about,
            **{name: value for name, value in limits.items() if value is not None},
        }


MODEL = Field("model", "string", "Name of the model, from /v1/models.", required=True)

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "integers": (list,),
    "text or list": (str, list),
}


def read(body: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """Return the value of every field, None where it is absent; other fields are ignored.

    Raises `RequestError` for a field that is missing, of another type, or out of range.
    """
    return {field.name: _value(body.get(field.name), field) for field in fields}


def _value(value: Any, field: Field) -> Any:
    if value is None:
        if field.required:
            raise RequestError(400, f"{field.name} is missing: {field.about}", field.name)
        return None
    fits = isinstance(value, _KINDS[field.type])
    if isinstance(value, bool) and field.type != "boolean":
        fits = False
    if field.type == "text or list" and isinstance(value, list):
        fits = all(isinstance(item, str) for item in value)
    if field.type == "integers" and fits:
        fits = all(type(item) is int for item in value)
    if not fits:
        raise RequestError(
            400, f"{field.name} must be a {field.type}, got {_short(value)}", field.name
        )
    if field.type in ("integer", "number"):
        low = -math.inf if field.low is None else field.low
        high = math.inf if field.high is None else field.high
        if not low <= value <= high or abs(value) == math.inf:
            raise RequestError(
                400, f"{field.name} must be from {low:g} to {high:g}, got {_short(value)}",
                field.name,
            )  # fmt: skip
    return value


def _short(value: Any) -> str:
    """Describe a value without repeating a user's text."""
    return repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"


def from_json(raw: bytes) -> dict[str, Any]:
    """Return the object in a JSON body. Raises `RequestError` for anything else."""
    try:
        body = _DECODER.decode(raw.decode("utf-8"))
        if b"\\u" in raw:  # half of a surrogate pair is no text
            json.dumps(body, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is not JSON in UTF-8") from None
    if not isinstance(body, dict):
        raise RequestError(400, f"the body must be a JSON object, got a {type(body).__name__}")
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def from_form(raw: bytes) -> dict[str, Any]:
    """Return the fields of a form, a list where one comes several times."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
    except ValueError:
        raise RequestError(400, "the body is not a form in UTF-8") from None
    body: dict[str, Any] = {}
    for name, value in pairs:
        body[name] = [*_list(body[name]), value] if name in body else value
    return body


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
