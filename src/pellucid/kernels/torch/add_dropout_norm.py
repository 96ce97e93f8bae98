"""LayerNorm(residual + dropout(x)) on torch's layer norm."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from pellucid.core.rng import Rng
from pellucid.core.vjp import Run
from pellucid.kernels.torch.draws import draws_on, mask_of, masked
from pellucid.kernels.torch.layer_norm import is_affine, normalise
from pellucid.kernels.torch.tensors import are_numbers


def plan(
    x: Tensor,
    residual: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    norm: str = "layer_norm",
    eps: float = 1e-5,
    dropout: float = 0.0,
    rng: Rng | None = None,
) -> Run | None:
    """Plan `ops.add_dropout_norm` with the layer norm; x and residual alike."""
    if not (
        norm == "layer_norm"
        and are_numbers(x, residual)
        and x.shape == residual.shape
        and is_affine(x, weight, bias)
        and draws_on(x.device, dropout, rng)
    ):
        return None

    def run() -> tuple[Tensor, Any]:
        keep = mask_of(x, dropout, rng)
        y, norm_backward = normalise(residual + masked(x, keep, dropout), weight, bias, eps)

        def backward(dy: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
            """Return dx, dresidual, dweight, dbias."""
            dsum, dweight, dbias = norm_backward(dy)
            return masked(dsum, keep, dropout), dsum, dweight, dbias

        return y, backward

    return run
