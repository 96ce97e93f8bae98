"""Gated activations, SwiGLU and GeGLU: one half of the input, activated, scales the other half."""

from typing import Annotated, Any, NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.ops.gelu import gelu, gelu_backward
from pellucid.ops.silu import silu, silu_backward


class Saved(NamedTuple):
    gate: Array  # SiLU(a) or GELU(a)
    b: Array
    inner: Any


def swiglu(x: Annotated[Array, "… 2F"]) -> tuple[Annotated[Array, "… F"], Saved]:
    """Return SiLU(a) ⊙ b, where x = [a, b] along the last axis.

        1.  s = a σ(a)
        2.  y = s ⊙ b

    Raises `ValueError` when the last axis has odd length.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", 2.

    >>> import numpy as np
    >>> swiglu(np.array([50.0, 0.0, 2.0, 3.0]))[0]
    array([100.,   0.])
    """
    a, b = _halves(x)
    gate, inner = silu(a)  # 1
    return gate * b, Saved(gate, b, inner)  # 2


def swiglu_backward(dy: Annotated[Array, "… F"], saved: Saved) -> Annotated[Array, "… 2F"]:
    """Return the gradient dx = [da, db].

    2.  ds = dy ⊙ b,  db = dy ⊙ s
    1.  da = ds ⊙ SiLU′(a)
    """
    gate, b, inner = saved
    da = silu_backward(dy * b, inner)  # 2, 1
    return namespace(dy).concat([da, dy * gate], axis=-1)


def geglu(
    x: Annotated[Array, "… 2F"], approximate: str = "none"
) -> tuple[Annotated[Array, "… F"], Saved]:
    """Return GELU(a) ⊙ b, where x = [a, b] along the last axis.

        1.  s = GELU(a)
        2.  y = s ⊙ b

    `approximate` is that of `gelu`. Raises `ValueError` when the last axis has odd length.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", 2.

    >>> import numpy as np
    >>> geglu(np.array([50.0, 0.0, 2.0, 3.0]))[0]
    array([100.,   0.])
    """
    a, b = _halves(x)
    gate, inner = gelu(a, approximate)  # 1
    return gate * b, Saved(gate, b, inner)  # 2


def geglu_backward(dy: Annotated[Array, "… F"], saved: Saved) -> Annotated[Array, "… 2F"]:
    """Return the gradient dx = [da, db].

    2.  ds = dy ⊙ b,  db = dy ⊙ s
    1.  da = ds ⊙ GELU′(a)
    """
    gate, b, inner = saved
    da = gelu_backward(dy * b, inner)  # 2, 1
    return namespace(dy).concat([da, dy * gate], axis=-1)


def _halves(x: Array) -> tuple[Array, Array]:
    if x.shape[-1] % 2:
        raise ValueError(f"a gate needs a last axis of even length, got shape {tuple(x.shape)}")
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]
