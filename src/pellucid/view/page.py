"""The page: one HTML file with the viewer and the record inside."""

from __future__ import annotations

import html
import json
import logging
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from pellucid import ops
from pellucid.view.arrays import PRECISIONS, Precision, as_text, rounded
from pellucid.view.record import KINDS, Map, Record

FORMAT = 2
LARGEST = 15_000_000
"""Bytes that a page should stay under: what a mail attachment may be nearly everywhere."""
TITLE, RECORD = "<!--title-->", "/*record*/"

_log = logging.getLogger(__name__)


def page(record: Record) -> str:
    """Return the HTML of a record.

    Numbers are kept to float32's precision where the file stays under 15 MB, else coarser; the
    page says by how much its weights are off.
    """
    head, tail = _template().split(RECORD)
    text = json.dumps(as_json(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # In a script element only "<" could end it, or begin a comment; JSON may write it as \u003c.
    title = html.escape(record.title)
    whole = head.replace(TITLE, title) + text.replace("<", "\\u003c") + tail
    if len(whole) > LARGEST:
        _log.warning("the page is %.1f MB, too large for many a mailbox", len(whole) / 1e6)
    return whole


def as_json(record: Record) -> dict[str, Any]:
    """Return the record as the page reads it: plain lists, strings and numbers."""
    precision = precision_for(record)
    return {
        "format": FORMAT,
        "title": record.title,
        "model": record.model,
        "loss": record.loss,
        "notes": list(record.notes),
        "source": [list(label) for label in record.source],
        "target": [list(label) for label in record.target],
        "off": max((_off(m, precision) for m in record.maps), default=0.0),
        "maps": [_map(m, precision) for m in record.maps],
        "steps": [
            {
                "label": list(step.label),
                "probability": step.probability,
                "place": step.place,
                "candidates": [[*c.label, c.probability] for c in step.candidates],
            }
            for step in record.steps
        ],
        "tree": [
            [n.parent, *n.label, n.probability, n.log_p, n.state, n.rank] for n in record.tree
        ],
    }


def precision_for(record: Record) -> Precision:
    """Return the finest precision whose page stays under `LARGEST`, or the coarsest."""
    numbers = sum((m.q.size + m.k.size) // 2 for m in record.maps)
    rest = len(_template()) + 200 * (len(record.tree) + 10 * len(record.steps))
    fitting = (p for p in PRECISIONS if p.size(numbers) + rest < LARGEST)
    return next(fitting, PRECISIONS[-1])


def _map(m: Map, precision: Precision) -> dict[str, Any]:
    queries, keys = KINDS[m.kind]
    return {
        "name": m.name,
        "kind": m.kind,
        "layer": m.layer,
        "queries": queries,
        "keys": keys,
        "causal": m.causal,
        "scales": m.scales.tolist(),
        "entropies": m.entropies.tolist(),
        "q": as_text(m.q, precision.q),
        "k": as_text(m.k, precision.k),
        "v": as_text(m.v, precision.v),
        "doutputs": as_text(m.doutputs, precision.doutputs),
    }


def _off(m: Map, precision: Precision) -> float:
    """Return by how much the weights that the page computes differ from the library's, at most."""
    q, k = rounded(m.q, precision.q), rounded(m.k, precision.k)
    _, saved = ops.attention(q * m.scale, k, k, scale=1.0, causal=m.causal)
    return float(np.abs(saved.probabilities - m.probabilities).max(initial=0.0))


@cache
def _template() -> str:
    return resources.files("pellucid.view").joinpath("page.html").read_text(encoding="utf-8")
