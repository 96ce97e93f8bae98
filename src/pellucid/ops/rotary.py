"""Rotary positions: queries and keys turned by an angle that grows with their position."""

from __future__ import annotations

from typing import NamedTuple

from pellucid.core.array import Array, namespace

BASE = 10000.0


class Saved(NamedTuple):
    cos: Array  # (T, 1, D / 2)
    sin: Array


def rotary(x: Array, positions: Array, base: float = BASE) -> tuple[Array, Saved]:
    """Return x with every pair (x_i, x_{i + D/2}) of a row turned by the angle of its position.

        1.  θ_ti = t · base^(−2i/D)                          t the row's position, i < D/2
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
    xp = namespace(x, positions)
    half = x.shape[-1] // 2
    pairs = xp.arange(half, dtype=xp.float64, device=x.device)
    frequency = base ** (-pairs / half)
    theta = xp.astype(positions, xp.float64)[:, None, None] * frequency  # 1
    saved = Saved(xp.astype(xp.cos(theta), x.dtype), xp.astype(xp.sin(theta), x.dtype))
    return _turned(x, saved.cos, saved.sin), saved  # 2


def rotary_backward(dy: Array, saved: Saved) -> Array:
    """Return dx: a rotation's transpose is the rotation by −θ."""
    return _turned(dy, saved.cos, -saved.sin)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return namespace(x).concat([first * cos - second * sin, second * cos + first * sin], axis=-1)
