"""The page: one HTML file with the viewer and the record inside, its arrays as base64."""

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
"""Bytes that a page should stay under: most mail servers accept such an attachment."""
TITLE, RECORD = "<!--title-->", "/*record*/"
POLICY, DATA = "default-src 'none';", '<script id="record" type="application/json">'
"""Where the template says what may be loaded, and where its data begins."""


class Precision(NamedTuple):
    """How many bits each number of a map gets."""

    q: int
    k: int
    v: int
    doutputs: int

    def size(self, record: Record) -> int:
        """Return the characters that the maps of a record take."""
        numbers = sum((m.q.size + m.k.size) // 2 for m in record.maps)
        return numbers * sum(self) // 8 * 4 // 3


PRECISIONS = (
    Precision(24, 24, 24, 24),  # all as float32 would have it
    Precision(24, 24, 24, 16),  # gradients off in the fifth digit
    Precision(16, 16, 8, 8),  # weights off in the fourth digit, the others in the third
)
"""Finest first; a page takes the first that keeps it small enough."""
INPUT_BITS = 24
"""Bits of all other arrays."""
ROWS = 1_000_000
"""Bytes of a page that the rows of the forward pass take at most."""


def live_page(title: str, record: str, live: Mapping[str, Any]) -> str:
    """Return the page that `pellucid serve` answers with: it may ask its server for records.

    record: JSON of the record that it opens with; live: what the server has, which the page reads
    in its element `live`.
    """
    whole = filled(title, record, live=live)
    return whole.replace(POLICY, f"{POLICY} connect-src 'self';", 1)


def script_of(page: str) -> str:
    """Return the page's script, by whose digest a server can allow it alone."""
    return page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]


def dumps(value: Any) -> str:
    """Return JSON as pages and servers write it: short, and never NaN."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def filled(title: str, record: str, **data: Mapping[str, Any] | None) -> str:
    """Return the page of a record's JSON, with further elements of data by their id."""
    head, tail = _template().split(RECORD)
    whole = head.replace(TITLE, html.escape(title)) + _escaped(record) + tail
    for name, value in data.items():
        if value is not None:
            head, tail = whole.split(DATA, 1)
            added = f'<script id="{name}" type="application/json">{_escaped(dumps(value))}</script>'
            whole = f"{head}{added}\n{DATA}{tail}"
    return whole


def _escaped(text: str) -> str:
    """Keep JSON inside its script element: only "<" could end it, or begin a comment."""
    return text.replace("<", "\\u003c")


def as_json(
    record: Record,
    cell: Cell | None = None,
    language: Language | None = None,
    precision: Precision | None = None,
    numbers: bool = True,
) -> dict[str, Any]:
    """Return the record as the page reads it: plain lists, strings and numbers.

    Without `precision` it is the finest by which the page stays under `LARGEST`, else the coarsest.
    Rows of the forward pass and gradients of the layers' inputs get the room that is left. Without
    `numbers` the page computes all of them by the model that it holds.
    """
    if cell is None and record.maps:
        cell = select_cell(record)
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
        "opens": None if cell is None else cell._asdict(),
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
    room = LARGEST - len(_template()) - len(dumps(values))
    if precision is None:
        fitting = (p for p in PRECISIONS if p.size(record) < room)
        precision = next(fitting, PRECISIONS[-1])
    room -= precision.size(record)
    parts = _strip(record, min(ROWS, room // 2), cell)
    off = max((_off(m, precision) for m in record.maps), default=0.0)
    maps = _maps(record, precision, room - len(dumps(parts)), cell)
    return values | parts | {"off": off, "maps": maps}


def _rows(x: Array) -> dict[str, Any]:
    """Return x (n,) or (T, n) row by row, each with a separate factor."""
    return as_text(np.atleast_2d(x)[:, None], INPUT_BITS)


def _strip(record: Record, room: int, cell: Cell | None) -> dict[str, Any]:
    """Return the parts: norms of all rows, and as many rows as there is room for.

    Rows that are left out are those furthest from the cell that the page opens on.
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
    values = {name: x for name, x in vars(part).items() if name not in ("rows", "drows")}
    for name, rows in (("rows", part.rows), ("drows", part.drows)):
        if kept is not None and rows is not None:
            values[name] = _rows(rows[kept])
            values[f"{name}_norms"] = _rows(np.linalg.norm(np.asarray(rows, np.float64), axis=1))
    return values


def _maps(
    record: Record, precision: Precision, room: int, cell: Cell | None
) -> list[dict[str, Any]]:
    """Return every map; gradients of their inputs as long as there is room."""
    gradients = {}
    opened = (None, None) if cell is None else (cell.kind, cell.layer + 1)
    for m in sorted(record.maps, key=lambda m: (m.kind, m.layer) != opened):
        if m.dqueries is None or m.dkeys is None:
            continue
        room -= (m.dqueries.size + m.dkeys.size) * INPUT_BITS // 6
        if room > 0:
            gradients[m.name] = {
                "dqueries": as_text(m.dqueries[None], INPUT_BITS),
                "dkeys": as_text(m.dkeys[None], INPUT_BITS),
            }
    return [_map(m, precision) | gradients.get(m.name, {}) for m in record.maps]


def _map(m: Map, precision: Precision) -> dict[str, Any]:
    bits = precision._asdict()
    return _about(m) | {
        **({} if m.added is None else {"added": as_text(m.added[:, None], INPUT_BITS)}),
        **{name: as_text(getattr(m, name), some) for name, some in bits.items()},
    }


def _about(m: Map) -> dict[str, Any]:
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
    """Return by how much the weights that the page computes differ from the library's, at most."""
    q, k = rounded(m.q, precision.q), rounded(m.k, precision.k)
    _, saved = ops.attention(q * m.scale, k, k, scale=1.0, rule=m.rule)
    return float(np.abs(saved.probabilities - m.probabilities).max(initial=0.0))


def as_text(x: Array, bits: int) -> dict[str, Any]:
    """Return x (H, …) as base64 of its bits-bit whole numbers, little end first.

    x[h] ≈ factors[h] · numbers[h], off by half a factor at most.

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
    """Return x as `as_text` keeps it."""
    numbers, factors = _quantise(x, bits)
    near: Array = numbers * factors
    return near


def _quantise(x: Array, bits: int) -> tuple[Array, Array]:
    x = np.asarray(x, np.float64)
    most = 2 ** (bits - 1) - 1
    largest = np.abs(x).max(axis=tuple(range(1, x.ndim)), keepdims=True, initial=0.0)
    exact = np.where(largest > 0, largest, 1.0) / most
    # Nine digits are float32's, in half the characters.
    factors = np.array([float(f"{factor:.9g}") for factor in exact.flat]).reshape(exact.shape)
    return np.rint(x / factors).astype(np.int64), factors


def learn_page() -> str:
    """Return the page that trains a model by itself; no data is put into it."""
    return _built("learn.html")


def _template() -> str:
    return _built("page.html")


@cache
def _built(name: str) -> str:
    return resources.files("pellucid.apps.view").joinpath(name).read_text(encoding="utf-8")
