"""SwiGLU, a gated activation: SiLU(a) ⊙ b of the two halves of its input."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.ops.silu import Saved as SiluSaved
from pellucid.ops.silu import silu, silu_backward


class Saved(NamedTuple):
    gate: Array  # SiLU(a)
    b: Array
    silu: SiluSaved


def swiglu(x: Annotated[Array, "… 2F"]) -> tuple[Annotated[Array, "… F"], Saved]:
    """Return SiLU(a) ⊙ b, where x = [a, b] along the last axis.

        1.  s = a σ(a)
        2.  y = s ⊙ b

    Raises `ValueError` when the last axis is of odd length.
    Source: Shazeer 2020, "GLU Variants Improve Transformer", 2.

    >>> import numpy as np
    >>> swiglu(np.array([50.0, 0.0, 2.0, 3.0]))[0]
    array([100.,   0.])
    """
    if x.shape[-1] % 2:
        raise ValueError(f"swiglu halves its last axis, which must be even; got {tuple(x.shape)}")
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    gate, inner = silu(a)  # 1
    return gate * b, Saved(gate, b, inner)  # 2


def swiglu_backward(dy: Annotated[Array, "… F"], saved: Saved) -> Annotated[Array, "… 2F"]:
    """Return dx = [da, db].

    2.  ds = dy ⊙ b,  db = dy ⊙ s
    1.  da = ds ⊙ SiLU′(a)
    """
    gate, b, inner = saved
    da = silu_backward(dy * b, inner)  # 2, 1
    return namespace(dy).concat([da, dy * gate], axis=-1)
