"""Frozen settings that layers are built from; the defaults are the paper's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pellucid.nn.function import check_finite, check_probability
from pellucid.ops.rotary import PLAIN, Angles
from pellucid.ops.rule import EVERYTHING, Rule
from pellucid.ops.rules.distances import Distances
from pellucid.ops.rules.function import Function

Rotate = Callable[..., tuple[Any, Any]]
"""An op (x (T, H, D), positions (T,), angles) -> y (T, H, D)."""


class Relative(NamedTuple):
    """T5's relative positions: a table of learnt biases with a row for each bucket of distances.

    Distances of `longest` and more share the last bucket. See `ops.relative_buckets`.
    """

    buckets: int = 32
    longest: int = 128


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Settings of an attention layer: its sizes, and departures from the paper.

    Raises `ValueError` for sizes that are not positive or do not divide, and numbers that are not
    finite.

    >>> from pellucid.ops import rules
    >>> config = AttentionConfig(embed_dim=8, num_heads=2, rule=rules.window(2))
    >>> config.head_width, config.groups, config.of_memory().rule.allowed
    (4, 2, ())
    """

    embed_dim: int
    """Width E of the rows."""
    num_heads: int
    """Heads H of queries."""
    kdim: int | None = None
    """Width of the rows that keys are made from. None: E."""
    vdim: int | None = None
    """Width of the rows that values are made from. None: E."""
    bias: bool = True
    """Whether the four products have biases."""
    qkv_bias: bool | None = None
    """Whether the projections to q, k and v have biases. None: as `bias`."""
    dropout: float = 0.0
    """Dropout of the attention weights, while training."""
    scale: float | Literal["learned"] | None = None
    """Factor of the scores. None: 1/√D. "learned": one number for each head, which begins at
    1/√D."""
    key_value_heads: int | None = None
    """Heads of keys and values; each is shared by as many neighbouring query heads (Ainslie et al.
    2023). None: as many as query heads."""
    head_dim: int | None = None
    """Width D of a head. None: E / H."""
    qk_norm: float | None = None
    """The epsilon of an RMSNorm over every query and key, head by head, before any rotation
    (Henry et al. 2020; here as in Qwen 3). None: no norm."""
    rule: Rule = EVERYTHING
    """Which keys a query of self-attention may see, and changes to the scores: `ops.rules`. The
    context adds to it."""
    relative: Relative | None = None
    """A learned number for every head and distance is added to the scores (T5)."""
    function: Function | None = None
    """A function applied last to self-attention's scores; the layer learns its parameters.
    """
    sinks: bool = False
    """Every head learns a score that no key has; a query that gives it weight looks at nothing."""
    rotate: Rotate | None = None
    """Queries and keys are turned by their positions."""
    angles: Angles = PLAIN
    """How far `rotate` turns."""

    def __post_init__(self) -> None:
        e, h = self.embed_dim, self.num_heads
        if e <= 0 or h <= 0:
            raise ValueError(f"embed_dim and num_heads must be positive, got {e} and {h}")
        if self.head_dim is None and e % h:
            raise ValueError(f"num_heads must divide embed_dim: {e} is not a multiple of {h}")
        for name in ("key_value_heads", "head_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive, got {value}")
        if h % self.groups:
            raise ValueError(
                f"the heads of keys and values must divide num_heads: {h} is not a multiple of "
                f"{self.groups}"
            )
        check_probability(self.dropout)
        if isinstance(self.scale, str) and self.scale != "learned":
            raise ValueError(f'scale must be a number, None or "learned", got {self.scale!r}')
        if isinstance(self.scale, float | int):
            check_finite(self.scale, "scale")
        if self.qk_norm is not None:
            check_finite(self.qk_norm, "qk_norm")
            if self.qk_norm <= 0:
                raise ValueError(f"qk_norm must be positive, got {self.qk_norm}")

    @property
    def head_width(self) -> int:
        """Width D of a head."""
        return self.head_dim or self.embed_dim // self.num_heads

    @property
    def groups(self) -> int:
        """The number G of key and value heads; query heads share them where G < H."""
        return self.key_value_heads or self.num_heads

    @property
    def width(self) -> int:
        """H · D, the width of all queries: E unless `head_dim` is set."""
        return self.num_heads * self.head_width

    def of_memory(self) -> AttentionConfig:
        """Return the config for cross-attention, whose keys have no distance from the queries."""
        capped = Rule(score=tuple(x for x in self.rule.score if not isinstance(x, Distances)))
        return replace(self, rule=capped, relative=None, function=None, rotate=None)
