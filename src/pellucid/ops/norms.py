"""The norms over the last axis: `NORMS` has the record of each by its name."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.vjp import Pair
from pellucid.ops.layer_norm import layer_norm, layer_norm_backward
from pellucid.ops.rms_norm import rms_norm, rms_norm_backward


@dataclass(frozen=True)
class Norm:
    """All that is known of a norm over the last axis. A new one is a file and its row in `NORMS`.

    op: (x, weight, bias, eps) -> y, and backward(dy) -> dx, dweight, dbias.
    """

    name: str
    op: Pair
    has_bias: bool
    """Whether its layer learns a bias besides the weight."""


NORMS: dict[str, Norm] = {
    norm.name: norm
    for norm in (
        Norm("layer_norm", Pair(layer_norm, layer_norm_backward), has_bias=True),
        Norm("rms_norm", Pair(rms_norm, rms_norm_backward), has_bias=False),
    )
}
