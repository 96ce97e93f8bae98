"""Which norms there are. A new one is a page of its own and a row here."""

from __future__ import annotations

from dataclasses import dataclass

from pellucid.core.vjp import Pair
from pellucid.ops.layer_norm import layer_norm, layer_norm_backward
from pellucid.ops.rms_norm import rms_norm, rms_norm_backward


@dataclass(frozen=True)
class Norm:
    """All that is known of a norm over the last axis.

    op: (x, weight, bias, eps) -> y, and backward(dy) -> dx, dweight, dbias.
    """

    name: str
    op: Pair
    has_bias: bool
    """Whether its layer learns a bias besides the weight."""
    kernel: bool = False
    """Whether the fused kernels compute it."""
    onnx: str | None = None
    """The ONNX operator; None: it cannot be exported."""


NORMS: dict[str, Norm] = {
    norm.name: norm
    for norm in (
        Norm(
            "layer_norm",
            Pair(layer_norm, layer_norm_backward),
            has_bias=True,
            kernel=True,
            onnx="LayerNormalization",
        ),
        Norm("rms_norm", Pair(rms_norm, rms_norm_backward), has_bias=False),
    )
}
