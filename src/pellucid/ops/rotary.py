"""Rotary positions (RoPE): rotate queries and keys by an angle proportional to the position."""

import math
from typing import Annotated, NamedTuple

import numpy as np

from pellucid.core.array import Array, like, namespace


class Angles(NamedTuple):
    """The rotation frequencies of RoPE; the defaults are RoFormer's.

    `factor` divides all frequencies, so that a longer text stays within the angles of a shorter one
    (position interpolation, Chen et al. 2023). With all of `low`, `high` and `original`, as in
    Llama 3: pairs of channels that make more than `high` full turns within `original` positions
    keep their frequency, those with fewer than `low` turns have it divided by `factor`, and those
    in between are interpolated.
    """

    base: float = 10000.0
    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    original: int | None = None

    def frequencies(self, half: int) -> np.ndarray:
        """Return the angle per position for each pair of channels, (half,) float64.

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
    """Rotate each pair of channels (x_i, x_{i + D/2}) by an angle that depends on the position.

        1.  θ_ti = t · base^(−2i/D)        t the row's position, i < D/2 (changed by `angles`)
        2.  y_i       = x_i cos θ − x_{i+D/2} sin θ
            y_{i+D/2} = x_{i+D/2} cos θ + x_i sin θ

    x: (T, H, D), D even; positions: (T,) integers; y: shape and dtype of x. A rotation preserves
    lengths, and y_s · y_t depends on positions only through the distance s − t.
    Raises `ValueError` when D is odd. Source: Su et al. 2021 (RoFormer), 3.4.2; channels paired as
    in GPT-NeoX and Llama.

    >>> import numpy as np
    >>> rotary(np.array([[[1.0, 0.0]]]), np.array([0]))[0]
    array([[[1., 0.]]])
    """
    if x.shape[-1] % 2:
        raise ValueError(f"rotary pairs the numbers of a head, so D must be even; got {x.shape}")
    saved = cos_sin(positions, x, angles)  # 1
    return _turned(x, saved.cos, saved.sin), saved  # 2


def cos_sin(positions: Array, x: Array, angles: Angles) -> Saved:
    """Return cos θ and sin θ, (T, 1, D/2), computed in float64 and cast to the dtype of x.

    By default JAX has no float64; it computes them in float32.
    """
    xp = namespace(x, positions)
    frequency = like(angles.frequencies(x.shape[-1] // 2), x)
    theta = xp.astype(positions, xp.float64)[:, None, None] * frequency
    return Saved(xp.astype(xp.cos(theta), x.dtype), xp.astype(xp.sin(theta), x.dtype))


def rotary_backward(dy: Annotated[Array, "T H D"], saved: Saved) -> Annotated[Array, "T H D"]:
    """Return dx, which is dy rotated by −θ: the transpose of a rotation is its inverse."""
    return _turned(dy, saved.cos, -saved.sin)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return namespace(x).concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
