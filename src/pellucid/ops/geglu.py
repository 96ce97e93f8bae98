"""GeGLU, a gated activation: GELU(a) ⊙ b of the two halves of its input."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.ops.gelu import Saved as GeluSaved
from pellucid.ops.gelu import gelu, gelu_backward


class Saved(NamedTuple):
    gate: Array  # GELU(a)
    b: Array
    gelu: GeluSaved


def geglu(
    x: Annotated[Array, "… 2F"], approximate: str = "none"
) -> tuple[Annotated[Array, "… F"], Saved]:
    """Return GELU(a) ⊙ b, where x = [a, b] along the last axis.

        1.  s = GELU(a)
        2.  y = s ⊙ b

    `approximate` as in `gelu`. Raises `ValueError` when the last axis is of
    odd length. Source: Shazeer 2020, "GLU Variants Improve Transformer", 2.

    >>> import numpy as np
    >>> geglu(np.array([50.0, 0.0, 2.0, 3.0]))[0]
    array([100.,   0.])
    """
    if x.shape[-1] % 2:
        raise ValueError(f"geglu halves its last axis, which must be even; got {tuple(x.shape)}")
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    gate, inner = gelu(a, approximate)  # 1
    return gate * b, Saved(gate, b, inner)  # 2


def geglu_backward(dy: Annotated[Array, "… F"], saved: Saved) -> Annotated[Array, "… 2F"]:
    """Return dx = [da, db].

    2.  ds = dy ⊙ b,  db = dy ⊙ s
    1.  da = ds ⊙ GELU′(a)
    """
    gate, b, inner = saved
    da = gelu_backward(dy * b, inner)  # 2, 1
    return namespace(dy).concat([da, dy * gate], axis=-1)
