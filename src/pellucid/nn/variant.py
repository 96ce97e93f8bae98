"""What an attention layer may do otherwise than the paper's: the defaults are the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pellucid.core.array import Array, host
from pellucid.nn.function import check_finite
from pellucid.ops.rotary import PLAIN, Angles

Rotate = Callable[..., tuple[Any, Any]]
"""An op (x (T, H, D), positions (T,), angles) -> y (T, H, D)."""
DistanceBias = Callable[[Array, int], Array]
"""(query position − key position (…, L, S), H) -> what is added to the scores (…, H, L, S)."""


class Relative(NamedTuple):
    """How distances share the rows of a table: `ops.relative_buckets`."""

    buckets: int = 32
    longest: int = 128


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One record of all that models vary in an attention layer.

    >>> Variant(window=2).of_memory().window is None
    True
    """

    key_value_heads: int | None = None
    """Heads of keys and values; each is shared by as many neighbouring query heads (Ainslie et al.
    2023). None: as many as query heads."""
    head_dim: int | None = None
    """Width D of a head. None: embed_dim / num_heads."""
    qkv_bias: bool | None = None
    """Whether the projections to q, k and v have biases. None: as the layer's other products."""
    qk_norm: float | None = None
    """The epsilon of an RMSNorm over every query and key, head by head, before any rotation
    (Henry et al. 2020; here as in Qwen 3). None: no norm."""
    softcap: float | None = None
    """Scores are kept within (−c, c) (Gemma 2)."""
    window: int | None = None
    """A query sees keys less than so many positions away (Mistral)."""
    distance_bias: DistanceBias | None = None
    """Added to the scores by distance: ALiBi."""
    relative: Relative | None = None
    """A learned number for every head and distance is added to the scores (T5)."""
    rotate: Rotate | None = None
    """Queries and keys are turned by their positions."""
    angles: Angles = PLAIN
    """How far `rotate` turns."""

    def __post_init__(self) -> None:
        for name in ("key_value_heads", "head_dim", "window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        for name in ("qk_norm", "softcap"):
            value = getattr(self, name)
            if value is not None:
                check_finite(value, name)
                if value <= 0:
                    raise ValueError(f"{name} must be positive, got {value}")

    def of_memory(self) -> Variant:
        """Return the variant of cross-attention, whose keys have no distance from the queries."""
        return replace(self, window=None, distance_bias=None, relative=None, rotate=None)

    def score_mask(self, cu_q: Array, cu_k: Array, heads: int, dtype: Any) -> Array | None:
        """Return what window and distances do to the scores: (N or 1, H or 1, L, S), or None.

        bool, True = not allowed, or float in `dtype`, added. The queries of a sequence are the last
        of its keys.

        >>> import numpy as np
        >>> Variant(window=2).score_mask(np.array([0, 3]), np.array([0, 3]), 1, None)[0, 0]
        array([[False, False,  True],
               [False, False, False],
               [ True, False, False]])
        """
        if self.window is None and self.distance_bias is None:
            return None
        distance, bias = distances(cu_q, cu_k), None
        if self.distance_bias is not None:
            bias = self.distance_bias(distance, heads).astype(dtype)
        if self.window is None:
            return bias
        far: Array = (host.abs(distance) >= self.window)[:, None]
        return far if bias is None else host.where(far, -host.inf, bias).astype(dtype)


PAPER = Variant()
"""Vaswani et al. 2017, and torch.nn.MultiheadAttention."""


def distances(cu_q: Array, cu_k: Array) -> Array:
    """Return query position − key position, (N, L, S), or (1, L, S) where all sequences agree.

    The queries of a sequence are the last of its keys.

    >>> import numpy as np
    >>> distances(np.array([0, 1]), np.array([0, 3]))
    array([[[2, 1, 0]]])
    """
    queries, keys = host.diff(cu_q), host.diff(cu_k)
    earlier = host.unique(keys - queries) if len(queries) else host.zeros(1, int)
    earlier = earlier if len(earlier) == 1 else keys - queries
    query = earlier[:, None] + host.arange(int(queries.max(initial=0)))
    found: Array = query[:, :, None] - host.arange(int(keys.max(initial=0)))
    return found
