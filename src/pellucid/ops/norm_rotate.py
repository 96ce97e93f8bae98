"""Normalise queries and keys (QK-norm), then apply rotary positions, before attention."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pellucid.core.array import Array, namespace, narrowed, widened
from pellucid.core.vjp import pair_of
from pellucid.ops.rms_norm import Saved as NormSaved
from pellucid.ops.rms_norm import rms_norm, rms_norm_backward
from pellucid.ops.rotary import PLAIN, Angles, rotary

Rotate = Callable[[Array, Array, Angles], tuple[Array, Any]]


class Saved(NamedTuple):
    heads: tuple[int, int]
    gains: Array | None
    """The weight γ of each head of queries and keys, (heads, D)."""
    norm: NormSaved | None
    rotate: Rotate | None
    turn: Any


def norm_rotate(
    x: Annotated[Array, "T N D"],
    heads: tuple[int, int],
    q_weight: Annotated[Array, "D"] | None = None,
    k_weight: Annotated[Array, "D"] | None = None,
    positions: Annotated[Array, "T"] | None = None,
    *,
    eps: float = 1e-5,
    rotate: Rotate = rotary,
    angles: Angles = PLAIN,
) -> tuple[Annotated[Array, "T N D"], Saved]:
    """Normalise and rotate the query and key heads of x; value heads stay as they are.

        1.  x̂ = RMSNorm(x), for each head separately
        2.  n = γ ⊙ x̂              γ = q_weight or k_weight
        3.  y = rotate(n, positions, angles)

    x: (T, N, D) holds heads[0] query heads, then heads[1] key heads, then the value heads. Without
    weights steps 1 and 2 are omitted, without positions step 3. `rotate` is `ops.rotary` or an op
    with its signature, whose backward is next to it in its module; `angles` says how the angles
    follow from positions, see `ops.rotary`. Raises `ValueError` when x has
    query and key heads but only one of the two weights is given. Source: Henry et al. 2020 (1, 2);
    Su et al. 2021 (3).

    >>> import numpy as np
    >>> norm_rotate(np.array([[[3.0, -3.0], [5.0, 7.0]]]), (1, 0), np.ones(2), eps=0.0)[0]
    array([[[ 1., -1.],
            [ 5.,  7.]]])
    """
    y, values = x[:, : sum(heads), :], x[:, sum(heads) :, :]
    gains, norm, turn = gains_of(heads, q_weight, k_weight), None, None
    if gains is not None:
        _, norm = rms_norm(y, eps=eps)  # 1
        y = narrowed(norm.x_hat * gains, x)  # 2
    if positions is not None:
        y, turn = rotate(y, positions, angles)  # 3
    saved = Saved(heads, gains, norm, None if positions is None else rotate, turn)
    return namespace(x, y).concat([y, values], axis=1), saved


def gains_of(heads: tuple[int, int], *weights: Array | None) -> Array | None:
    """Return the weight γ of each query and key head, (heads, D), or None without weights.

    heads: how many there are of each kind; `weights` has one for each kind. Raises `ValueError` if
    only some kinds that have heads have a weight.
    """
    given = [(n, w) for n, w in zip(heads, weights, strict=True) if n and w is not None]
    if not given:
        return None
    if sum(n for n, _ in given) < sum(heads):
        raise ValueError("queries and keys are both normalised or neither; got one weight of two")
    xp = namespace(*(w for _, w in given))
    return xp.concat([xp.broadcast_to(w, (n, *w.shape)) for n, w in given])


def norm_rotate_backward(
    dy: Annotated[Array, "T N D"], saved: Saved
) -> tuple[Annotated[Array, "T N D"], Annotated[Array, "D"] | None, Annotated[Array, "D"] | None]:
    """Return dx, dq_weight and dk_weight; None for a weight that was not used.

    3.  dn = rotation's backward of dy
    2.  dγ = Σ dn ⊙ x̂ over rows and heads,  dx̂ = dn ⊙ γ
    1.  dx = RMSNorm's backward of dx̂
    """
    (q, k), gains, norm, rotate, turn = saved
    xp, dx = namespace(dy, gains), dy[:, : q + k, :]
    dweights: list[Array | None] = [None, None]
    if rotate is not None:
        dx = pair_of(rotate).backward(dx, turn)  # 3
    if gains is not None and norm is not None:
        dn = widened(dx)
        dgains = xp.sum(dn * norm.x_hat, axis=0)  # 2
        dweights = [
            narrowed(xp.sum(d, axis=0), dy) if d.shape[0] else None
            for d in (dgains[:q, :], dgains[q:, :])
        ]
        dx, _, _ = rms_norm_backward(narrowed(dn * gains, dy), norm)  # 1
    return xp.concat([dx, dy[:, q + k :, :]], axis=1), dweights[0], dweights[1]
