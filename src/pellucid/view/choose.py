"""Which map a picture is of: a kind, a layer, a head, checked against what the model has."""

from __future__ import annotations

from pellucid.core.errors import UsageError
from pellucid.view.record import Kind, Map, Record

TITLES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


def choose_kind(record: Record, kind: Kind | None) -> Kind:
    """Return `kind`, or the last that the model has. Raises `UsageError` for one it lacks."""
    if not record.kinds:
        raise UsageError("there is no attention to draw: this model has no layers")
    if kind is None:
        return record.kinds[-1]
    if kind not in record.kinds:
        raise UsageError(f"this model has no {TITLES[kind]}; it has: {', '.join(record.kinds)}")
    return kind


def choose_layer(record: Record, kind: Kind, layer: int) -> Map:
    """Return a layer, counted from 1. Raises `UsageError` if there is none."""
    layers = record.layers(kind)
    if not 1 <= layer <= len(layers):
        raise UsageError(f"no layer {layer} of {TITLES[kind]}; layers are 1 to {len(layers)}")
    return layers[layer - 1]


def check_head(m: Map, head: int) -> None:
    """Raise `UsageError` unless there is such a head, counted from 1."""
    heads = m.q.shape[0]
    if not 1 <= head <= heads:
        raise UsageError(f"no head {head}; heads are 1 to {heads}")
