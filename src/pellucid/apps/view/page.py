"""Make the HTML page: one file with the viewer and a record, arrays in base64."""

import base64
import html
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.apps.view.backward import code
from pellucid.apps.view.record import (
    KINDS,
    Array,
    Cell,
    Kind,
    Language,
    Map,
    Part,
    Record,
    Side,
    rule_parts,
    select_cell,
)

FORMAT = 3
LARGEST = 15_000_000
"""The most bytes that a page should have: most mail servers accept such an attachment."""
TITLE, RECORD = "<!--title-->", "/*record*/"
POLICY, DATA = "default-src 'none';", '<script id="record" type="application/json">'
"""Strings of the template: its content security policy, and where its data begins."""


class Precision(NamedTuple):
    """Number of bits for each number of the arrays of a `Map`: 8, 16 or 24."""

    q: int
    k: int
    v: int
    doutputs: int

    def size(self, record: Record) -> int:
        """Estimate the number of base64 characters for q, k, v and doutputs of all maps."""
        numbers = sum((m.q.size + m.k.size) // 2 for m in record.maps)
        return numbers * sum(self) // 8 * 4 // 3


PRECISIONS = (
    Precision(24, 24, 24, 24),  # all as float32 would have it
    Precision(24, 24, 24, 16),  # gradients off in the fifth digit
    Precision(16, 16, 8, 8),  # weights off in the fourth digit, the others in the third
)
"""Precisions to try, finest first; a page uses the first that keeps it below `LARGEST`."""
INPUT_BITS = 24
"""Number of bits for each number of all other arrays."""
ROWS = 1_000_000
"""The most bytes of a page for the rows of the forward pass."""


def live_page(title: str, record: str, live: Mapping[str, Any]) -> str:
    """Return the page of `pellucid serve`, which may request records from its server.

    record: JSON of the record that is shown first; live: what the page must know of the server, put
    into its element `live`. The content security policy allows requests to that server alone.
    """
    return filled(title, record, live=live).replace(POLICY, f"{POLICY} connect-src 'self';", 1)


def script_of(page: str) -> str:
    """Return the text of the page's script.

    A server puts its digest into the content security policy, so that no other script runs.
    """
    return page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]


def dumps(value: Any) -> str:
    """Encode a value as compact JSON. Raises `ValueError` for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def filled(title: str, record: str, **data: Mapping[str, Any] | None) -> str:
    """Fill the template with a title, a record (JSON) and further data.

    Each entry of `data` that is not None becomes a JSON element, whose id is the entry's name.
    """
    head, tail = template().split(RECORD)
    whole = head.replace(TITLE, html.escape(title)) + _escaped(record) + tail
    for name, value in data.items():
        if value is not None:
            head, tail = whole.split(DATA, 1)
            added = f'<script id="{name}" type="application/json">{_escaped(dumps(value))}</script>'
            whole = f"{head}{added}\n{DATA}{tail}"
    return whole


def _escaped(text: str) -> str:
    """Escape "<" in JSON: it could end the script element, or begin a comment."""
    return text.replace("<", "\\u003c")


def as_json(
    record: Record,
    named: tuple[Kind | None, int | None, int | None] = (None, None, None),
    language: Language | None = None,
    precision: Precision | None = None,
    numbers: bool = True,
) -> dict[str, Any]:
    """Convert a record to JSON values for the page: lists, strings and numbers.

    named: the kind, layer and head of the map that the page opens on, counted from 1; without one
    it opens on the whole model. precision: default, the finest that keeps the page below `LARGEST`,
    or else the coarsest. The rows of the forward pass and the gradients of the layers' inputs are
    added as far as there is room. With `numbers=False` the arrays of maps and parts are left out:
    the page then holds the model and computes them itself.
    """
    cell = select_cell(record, *named) if record.maps else None
    check = record.check
    values = {
        "format": FORMAT,
        "title": record.title,
        "name": record.name,
        "model": record.model.en,
        "loss": record.loss,
        "notes": [note.en for note in record.notes],
        "korean": {"model": record.model.ko, "notes": [note.ko for note in record.notes]},
        "language": language,
        "tab": "whole" if set(named) == {None} and record.parts else "attention",
        "opens": cell and cell._asdict(),
        "code": code(),
        "check": check and check._asdict() | {"cell": check.cell._asdict()},
        "source": record.source,
        "target": record.target,
        "steps": [
            step._asdict() | {"candidates": [[*c.label, c.probability] for c in step.candidates]}
            for step in record.steps
        ],
        "tree": [
            [n.parent, *n.label, n.probability, n.log_p, n.state, n.rank] for n in record.tree
        ],
        "own": record.own,
    }
    if not numbers:
        shown = {"parts": [_part(part) for part in record.parts], "off": 0.0}
        return values | shown | {"maps": [_about(m) for m in record.maps]}
    room = LARGEST - len(template()) - len(dumps(values))
    if precision is None:
        fitting = (p for p in PRECISIONS if p.size(record) < room)
        precision = next(fitting, PRECISIONS[-1])
    room -= precision.size(record)
    parts = _strip(record, min(ROWS, room // 2), cell)
    off = max((_off(m, precision) for m in record.maps), default=0.0)
    maps = _maps(record, precision, room - len(dumps(parts)), cell)
    return values | parts | {"off": off, "maps": maps}


def _rows(x: Array) -> dict[str, Any]:
    """Quantize x, (n,) or (T, n), with a separate factor for each row."""
    return as_text(np.atleast_2d(x)[:, None], INPUT_BITS)


def _strip(record: Record, room: int, cell: Cell | None) -> dict[str, Any]:
    """Return the parts of the forward pass: norms of all rows, and rows that fit.

    room: characters left in the page. Rows nearest to the tokens of `cell` are kept.
    """
    if cell is None or not record.parts:
        return {}
    queries, keys = KINDS[cell.kind]
    opened = {keys: cell.key, queries: cell.query}
    sizes: dict[Side, int] = {"source": 0, "target": 0}  # of one token's rows
    for part in record.parts:
        arrays = [x for x in (part.rows, part.drows) if x is not None]
        sizes[part.side] += INPUT_BITS // 6 * sum(int(x.shape[1]) for x in arrays)
    needed = sum(len(record.labels(side)) * size for side, size in sizes.items())
    kept: dict[Side, list[int]] = {}
    for side in sizes:
        tokens = range(len(record.labels(side)))
        near = sorted(tokens, key=lambda token: abs(token - opened.get(side, 0)))
        kept[side] = sorted(near[: max(1, len(tokens) * room // max(needed, 1))])
    return {"kept": kept, "parts": [_part(part, kept[part.side]) for part in record.parts]}


def _part(part: Part, kept: list[int] | None = None) -> dict[str, Any]:
    """Return a part of the forward pass with the rows `kept` and the norms of all rows.

    kept: None leaves out all numbers.
    """
    values = {name: x for name, x in vars(part).items() if name not in ("rows", "drows")}
    for name, rows in (("rows", part.rows), ("drows", part.drows)):
        if kept is not None and rows is not None:
            values[name] = _rows(rows[kept])
            values[f"{name}_norms"] = _rows(np.linalg.norm(np.asarray(rows, np.float64), axis=1))
    return values


def _maps(
    record: Record, precision: Precision, room: int, cell: Cell | None
) -> list[dict[str, Any]]:
    """Return all maps, and the gradients of their inputs if they fit into `room`.

    The map that the page shows first comes first.
    """
    gradients = {}
    opened = (None, None) if cell is None else (cell.kind, cell.layer + 1)
    for m in sorted(record.maps, key=lambda m: (m.kind, m.layer) != opened):
        if m.dqueries is None or m.dkeys is None:
            continue
        room -= (m.dqueries.size + m.dkeys.size) * INPUT_BITS // 6
        if room > 0:
            both = {"dqueries": m.dqueries, "dkeys": m.dkeys}
            gradients[m.name] = {name: as_text(x[None], INPUT_BITS) for name, x in both.items()}
    return [_map(m, precision) | gradients.get(m.name, {}) for m in record.maps]


def _map(m: Map, precision: Precision) -> dict[str, Any]:
    """Return a map for the page with its arrays."""
    bits = precision._asdict()
    return _about(m) | {
        **({} if m.added is None else {"added": as_text(m.added[:, None], INPUT_BITS)}),
        **{name: as_text(getattr(m, name), some) for name, some in bits.items()},
    }


def _about(m: Map) -> dict[str, Any]:
    """Return a map for the page without its large arrays."""
    queries, keys = KINDS[m.kind]
    return {
        "name": m.name,
        "kind": m.kind,
        "layer": m.layer,
        "queries": queries,
        "keys": keys,
        "scales": m.scales.tolist(),
        "rule": rule_parts(m.rule),
        "entropies": m.entropies.tolist(),
    }


def _off(m: Map, precision: Precision) -> float:
    """Return the largest error of the attention weights that the page computes.

    The page does not store the weights; it computes them from rounded q and k. The error is against
    `m.probabilities`.
    """
    q, k = rounded(m.q, precision.q), rounded(m.k, precision.k)
    _, saved = ops.attention(q * m.scale, k, k, scale=1.0, rule=m.rule)
    return float(np.abs(saved.probabilities - m.probabilities).max(initial=0.0))


def as_text(x: Array, bits: int) -> dict[str, Any]:
    """Quantize x (H, …) to signed integers of `bits` bits, in base64, little-endian.

    x[h] ≈ factors[h] · integers[h], with an error of at most factors[h] / 2.

    >>> as_text(np.array([[1.0, -0.25]]), 8)
    {'shape': [1, 2], 'bits': 8, 'factors': [0.00787401575], 'data': 'f+A='}
    """
    numbers, factors = _quantise(x, bits)
    octets = np.ascontiguousarray(numbers.astype("<i4")).view(np.uint8).reshape(-1, 4)
    data = np.ascontiguousarray(octets[:, : bits // 8]).tobytes()
    return {
        "shape": list(x.shape),
        "bits": bits,
        "factors": factors.ravel().tolist(),
        "data": base64.b64encode(data).decode("ascii"),
    }


def rounded(x: Array, bits: int) -> Array:
    """Quantize x as `as_text` does, and return the values that the page decodes."""
    numbers, factors = _quantise(x, bits)
    near: Array = numbers * factors
    return near


def _quantise(x: Array, bits: int) -> tuple[Array, Array]:
    """Return integers of `bits` bits and the factor of each x[h].

    The factor is max |x[h]| / (2^(bits − 1) − 1).
    """
    x = np.asarray(x, np.float64)
    most = 2 ** (bits - 1) - 1
    largest = np.abs(x).max(axis=tuple(range(1, x.ndim)), keepdims=True, initial=0.0)
    exact = np.where(largest > 0, largest, 1.0) / most
    # Nine digits are float32's, in half the characters.
    factors = np.array([float(f"{factor:.9g}") for factor in exact.flat]).reshape(exact.shape)
    return np.rint(x / factors).astype(np.int64), factors


@cache
def template(name: str = "page.html") -> str:
    """Return a built page: that of a record, or learn.html, which needs none."""
    return resources.files("pellucid.apps.view").joinpath(name).read_text(encoding="utf-8")
