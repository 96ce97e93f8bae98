"""x Wᵀ + b in one call of torch's matrix library, the bias added on the way out."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from pellucid.core.vjp import Call, Declined, Result, check_gradient
from pellucid.kernels.torch.tensors import NOT_TENSORS, are_numbers, sum_of_rows


def kernel(call: Call) -> Result | Declined:
    """Compute `ops.linear`; shapes that do not fit are the page's to report."""
    x, weight, bias = call.x, call.weight, call.bias
    if not (
        are_numbers(x, weight, bias)
        and x.ndim >= 2
        and weight.ndim == 2
        and x.shape[-1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
    ):
        return Declined(NOT_TENSORS)
    shape = (*x.shape[:-1], len(weight))

    rows = x.reshape(-1, x.shape[-1])

    def backward(dy: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return dx = dy W, dW = dyᵀ x and db = Σ dy."""
        check_gradient(dy, shape)
        dy_rows = dy.reshape(-1, shape[-1])
        dx = (dy_rows @ weight).reshape(x.shape)
        return dx, dy_rows.T @ rows, None if bias is None else sum_of_rows(dy_rows)

    return functional.linear(rows, weight, bias).reshape(shape), backward
