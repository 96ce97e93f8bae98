"""The page: one HTML file with the viewer and the record inside, its arrays as base64."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from pellucid import ops
from pellucid.apps.view import derive
from pellucid.apps.view.backward import code
from pellucid.apps.view.record import (
    KINDS,
    Cell,
    Check,
    Derivation,
    Flow,
    Language,
    Map,
    Part,
    Record,
    Side,
    Stage,
    select_cell,
)
from pellucid.ops.rules.soft_cap import SoftCap
from pellucid.ops.rules.window import Window

Array = np.ndarray
SIDES: tuple[Side, ...] = ("source", "target")

FORMAT = 2
LARGEST = 15_000_000
"""Bytes that a page should stay under: most mail servers accept such an attachment."""
TITLE, RECORD = "<!--title-->", "/*record*/"
POLICY, DATA = "default-src 'none';", '<script id="record" type="application/json">'
"""Where the template says what may be loaded, and where its data begins."""

_log = logging.getLogger(__name__)


class Precision(NamedTuple):
    """How many bits each number of a map gets."""

    q: int
    k: int
    v: int
    doutputs: int

    def size(self, numbers: int) -> int:
        """Return the characters that maps of this many numbers in each array take."""
        return numbers * sum(self) // 8 * 4 // 3


PRECISIONS = (
    Precision(24, 24, 24, 24),  # all as float32 would have it
    Precision(24, 24, 24, 16),  # gradients off in the fifth digit
    Precision(16, 16, 8, 8),  # weights off in the fourth digit, the others in the third
)
"""Finest first; a page takes the first that keeps it small enough."""
INPUT_BITS = 24
"""Bits of rows, and of the gradients of the layers' inputs, which a page has where it has room."""
ROWS = 1_000_000
"""Bytes of a page that the rows of the forward pass take at most."""
WIDEST = 4096
"""Numbers of the widest gradient of a derivation that a page has."""


def page(
    record: Record,
    cell: Cell | None = None,
    language: Language | None = None,
    model: Mapping[str, Any] | None = None,
) -> str:
    """Return the HTML of a record, which opens on `cell`, by default the most telling one.

    Without `language` the page is in Korean for a Korean browser, else in English. With a `model`
    (`runnable`) its reader can run it.
    Numbers are kept to float32's precision where the file stays under 15 MB, else coarser; the
    page says by how much its weights are off.
    """
    whole = filled(record.title, dumps(as_json(record, cell, language)), run=model)
    if len(whole) > LARGEST:
        _log.warning("the page is %.1f MB, too large for many mailboxes", len(whole) / 1e6)
    return whole


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
) -> dict[str, Any]:
    """Return the record as the page reads it: plain lists, strings and numbers.

    Format 2 only ever gains keys, so that pages of other versions read it too. Without `precision`
    it is the finest that fits: `precision_for`.
    """
    precision = precision or precision_for(record)
    if cell is None and record.maps:
        cell = select_cell(record)
    return {
        "format": FORMAT,
        "title": record.title,
        "model": record.model.en,
        "loss": record.loss,
        "notes": [note.en for note in record.notes],
        "korean": {"model": record.model.ko, "notes": [note.ko for note in record.notes]},
        "language": language,
        "opens": None if cell is None else cell._asdict(),
        "code": shown_code(),
        "check": None if record.check is None else _check(record.check),
        "source": [list(label) for label in record.source],
        "target": [list(label) for label in record.target],
        "off": max((_off(m, precision) for m in record.maps), default=0.0),
        "maps": _maps(record, precision, cell),
        **_strip(record, precision, cell),
        "derivations": [_derivation(derivation) for derivation in record.derivations],
        "moved": derive.STEP,
        "flows": [_flow(flow) for flow in record.flows],
        "steps": [
            step._asdict() | {"candidates": [[*c.label, c.probability] for c in step.candidates]}
            for step in record.steps
        ],
        "tree": [
            [n.parent, *n.label, n.probability, n.log_p, n.state, n.rank] for n in record.tree
        ],
        "own": record.own,
    }


def shown_code() -> dict[str, list[list[Any]]]:
    """Return the lines of Pellucid's source behind each step of the backward pass."""
    return {step: [list(line) for line in lines] for step, lines in code().items()}


def precision_for(record: Record) -> Precision:
    """Return the finest precision whose page stays under `LARGEST`, or the coarsest."""
    fitting = (p for p in PRECISIONS if _size(record, p) < LARGEST)
    return next(fitting, PRECISIONS[-1])


def _size(record: Record, precision: Precision) -> int:
    """Estimate the bytes of a page without the gradients of the layers' inputs."""
    numbers = sum((m.q.size + m.k.size) // 2 for m in record.maps)
    rest = len(_template()) + 200 * (len(record.tree) + 10 * len(record.steps))
    rest += sum(_token_size(record, side) for side in SIDES)
    rest += sum(_flow_size(flow) for flow in record.flows)
    rest += 4 * sum(min(s.gradient.size, WIDEST) for d in record.derivations for s in d.steps)
    return precision.size(numbers) + rest


def _flow_size(flow: Flow) -> int:
    """Return about how many characters a flow takes."""
    heads = sum(0 if s.heads is None else s.heads.size for s in flow.stages)
    rows = sum(300 + 16 * len(s.edges) + 20 * s.arrives.size for s in flow.stages)
    return 4 * heads + rows


def _token_size(record: Record, side: Side) -> int:
    """Return the characters that the rows of one token take, and their gradients."""
    parts = [part for part in record.parts if part.side == side]
    arrays = [x for part in parts for x in (part.rows, part.drows) if x is not None]
    return INPUT_BITS // 6 * sum(int(x.shape[1]) for x in arrays)


def _strip(record: Record, precision: Precision, cell: Cell | None) -> dict[str, Any]:
    """Return the parts: norms of all rows, and as many rows as there is room for.

    Rows that are left out are those furthest from the cell that the page opens on.
    """
    if cell is None or not record.parts:
        return {}
    queries, keys = KINDS[cell.kind]
    opened = {keys: cell.key, queries: cell.query}
    room = min(ROWS, (LARGEST - _size(record, precision)) // 2)
    needed = sum(len(record.side(side)) * _token_size(record, side) for side in SIDES)
    kept: dict[Side, list[int]] = {}
    for side in SIDES:
        tokens = range(len(record.side(side)))
        count = max(1, len(tokens) * room // max(needed, 1))
        near = sorted(tokens, key=lambda token: abs(token - opened.get(side, 0)))
        kept[side] = sorted(near[:count])
    return {"kept": kept, "parts": [_part(part, kept[part.side]) for part in record.parts]}


def _part(part: Part, kept: list[int]) -> dict[str, Any]:
    values = {name: value for name, value in vars(part).items() if name not in ("rows", "drows")}
    for name, rows in (("rows", part.rows), ("drows", part.drows)):
        if rows is not None:
            norms = np.linalg.norm(np.asarray(rows, np.float64), axis=1)
            values[name] = as_text(rows[kept][:, None], INPUT_BITS)
            values[f"{name}_norms"] = as_text(norms[None, None], INPUT_BITS)
    return values


def _derivation(derivation: Derivation) -> dict[str, Any]:
    steps = [
        step._asdict()
        | {
            "gradient": as_text(step.gradient[None, None], INPUT_BITS)
            if step.gradient.size <= WIDEST
            else None
        }
        for step in derivation.steps
    ]
    return vars(derivation) | {"steps": steps}


def _flow(flow: Flow) -> dict[str, Any]:
    tables = {side: as_text(x[None, None], INPUT_BITS) for side, x in flow.tables.items()}
    return flow._asdict() | {"stages": [_stage(s) for s in flow.stages], "tables": tables}


def _stage(stage: Stage) -> dict[str, Any]:
    lengths = np.stack([stage.arrives, stage.around, stage.through, stage.leaves])
    further = {"heads": stage.heads, "memory": stage.memory}
    return {
        "role": stage.role,
        "stack": stage.stack,
        "side": stage.side,
        "layer": stage.layer,
        "lengths": as_text(lengths[:, None], INPUT_BITS),
        "edges": [[i, j, float(f"{length:.4g}")] for i, j, length in stage.edges],
        **{
            name: as_text(np.atleast_2d(x)[:, None], INPUT_BITS)
            for name, x in further.items()
            if x is not None
        },
    }


def _check(check: Check) -> dict[str, Any]:
    return check._asdict() | {"cell": check.cell._asdict()}


def _maps(record: Record, precision: Precision, cell: Cell | None) -> list[dict[str, Any]]:
    """Return every map; gradients of their inputs as long as the file stays under `LARGEST`."""
    room = LARGEST - _size(record, precision)
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
    queries, keys = KINDS[m.kind]
    window, cap = m.rule.part(Window), m.rule.part(SoftCap)
    return {
        "name": m.name,
        "kind": m.kind,
        "layer": m.layer,
        "queries": queries,
        "keys": keys,
        "causal": m.causal,
        "scales": m.scales.tolist(),
        **({} if window is None else {"window": window.size}),
        **({} if cap is None else {"softcap": cap.cap}),
        **({} if m.added is None else {"added": as_text(m.added[:, None], INPUT_BITS)}),
        "entropies": m.entropies.tolist(),
        "q": as_text(m.q, precision.q),
        "k": as_text(m.k, precision.k),
        "v": as_text(m.v, precision.v),
        "doutputs": as_text(m.doutputs, precision.doutputs),
    }


def _off(m: Map, precision: Precision) -> float:
    """Return by how much the weights that the page computes differ from the library's, at most."""
    q, k = rounded(m.q, precision.q), rounded(m.k, precision.k)
    _, saved = ops.attention(q * m.scale, k, k, **m.options)
    return float(np.abs(saved.probabilities - m.probabilities).max(initial=0.0))


def as_text(x: Array, bits: int) -> dict[str, Any]:
    """Return x (H, …) as base64 of its bits-bit whole numbers, little end first.

    x[h] ≈ factors[h] · numbers[h], off by half a factor at most.

    >>> as_text(np.array([[1.0, -0.5]]), 8)
    {'shape': [1, 2], 'bits': 8, 'factors': [0.007874015748031496], 'data': 'f8A='}
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
    factors = np.where(largest > 0, largest, 1.0) / most
    return np.rint(x / factors).astype(np.int64), factors


@cache
def _template() -> str:
    return resources.files("pellucid.apps.view").joinpath("page.html").read_text(encoding="utf-8")
