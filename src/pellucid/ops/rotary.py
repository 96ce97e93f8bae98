"""Rotary positions: queries and keys turned by an angle that grows with their position."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace


class Angles(NamedTuple):
    """How fast each pair of a head turns; the defaults are RoFormer's.

    `factor` slows all pairs, so that a longer text has the angles of a shorter one (Chen et al.
    2023). With `low` and `high`, Llama 3's: pairs that turn more than `high` times within
    `original` positions keep their speed, those that turn less than `low` times are slowed by the
    factor, and those between by something between.
    """

    base: float = 10000.0
    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    original: int | None = None

    def frequencies(self, half: int) -> np.ndarray:
        """Return the angle per position of every pair, (half,) float64.

        >>> Angles(base=100.0).frequencies(2)
        array([1. , 0.1])
        """
        speed: np.ndarray = self.base ** (-np.arange(half) / half)
        if self.low is None or self.high is None or self.original is None:
            return speed / self.factor
        turns = self.original * speed / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0)
        return speed * (kept + (1 - kept) / self.factor)


PLAIN = Angles()


class Saved(NamedTuple):
    cos: Array  # (T, 1, D / 2)
    sin: Array


def rotary(
    x: Annotated[Array, "T H D"], positions: Annotated[Array, "T"], angles: Angles = PLAIN
) -> tuple[Annotated[Array, "T H D"], Saved]:
    """Return x with every pair (x_i, x_{i + D/2}) of a row turned by the angle of its position.

        1.  θ_ti = t · base^(−2i/D)        t the row's position, i < D/2; or as `angles` says
        2.  y_i       = x_i cos θ − x_{i+D/2} sin θ
            y_{i+D/2} = x_{i+D/2} cos θ + x_i sin θ

    x: (T, H, D), D even; positions: (T,) integers; y: shape and dtype of x. A rotation keeps
    lengths, and y_s · y_t depends on x_s, x_t and the distance s − t alone.
    Raises `ValueError` when D is odd. Source: Su et al. 2021 (RoFormer), 3.4.2; halves paired as in
    GPT-NeoX and Llama.

    >>> import numpy as np
    >>> rotary(np.array([[[1.0, 0.0]]]), np.array([0]))[0]
    array([[[1., 0.]]])
    """
    if x.shape[-1] % 2:
        raise ValueError(f"rotary pairs the numbers of a head, so D must be even; got {x.shape}")
    saved = cos_sin(positions, x, angles)  # 1
    return _turned(x, saved.cos, saved.sin), saved  # 2


def cos_sin(positions: Array, x: Array, angles: Angles) -> Saved:
    """Return cos θ and sin θ of rows at these positions, for heads like x; found in float64."""
    xp = namespace(x, positions)
    frequency = like(angles.frequencies(x.shape[-1] // 2), x)
    theta = xp.astype(positions, xp.float64)[:, None, None] * frequency
    return Saved(xp.astype(xp.cos(theta), x.dtype), xp.astype(xp.sin(theta), x.dtype))


def rotary_backward(dy: Annotated[Array, "T H D"], saved: Saved) -> Annotated[Array, "T H D"]:
    """Return dx: a rotation's transpose is the rotation by −θ."""
    return _turned(dy, saved.cos, -saved.sin)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return namespace(x).concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
