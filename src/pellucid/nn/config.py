"""The settings of an attention layer as a frozen dataclass; the defaults are the paper's."""

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
"""An op f(x (T, H, D), positions (T,), angles) that returns (y (T, H, D), saved)."""


class Relative(NamedTuple):
    """T5's relative positions: a learned bias for each bucket of distances and each head.

    `buckets` is the number of buckets. Distances of at least `longest` share the last bucket of
    their direction. See `ops.relative_buckets`.
    """

    buckets: int = 32
    longest: int = 128


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """Settings of an attention layer: its sizes, and changes to the attention of the paper.

    Raises `ValueError` if embed_dim, num_heads, key_value_heads or head_dim is not positive, if
    num_heads does not divide embed_dim (unless head_dim is set), or if key_value_heads does not
    divide num_heads. Also for a dropout outside 0 to 1, for a scale other than None, "learned" or a
    number of at most 2⁶³ in size, and unless 0 < qk_norm ≤ 2⁶³.

    >>> from pellucid.ops import rules
    >>> config = AttentionConfig(embed_dim=8, num_heads=2, rule=rules.window(2))
    >>> config.head_width, config.groups, config.of_memory().rule.allowed
    (4, 2, ())
    """

    embed_dim: int
    """Width E of the rows."""
    num_heads: int
    """Number H of query heads."""
    kdim: int | None = None
    """Width of the rows that are projected to keys. None: E."""
    vdim: int | None = None
    """Width of the rows that are projected to values. None: E."""
    bias: bool = True
    """Whether the projections to q, k and v and the output projection have biases."""
    qkv_bias: bool | None = None
    """Whether the projections to q, k and v have biases. None: the same as `bias`."""
    dropout: float = 0.0
    """Dropout probability of the attention weights in training."""
    scale: float | Literal["learned"] | None = None
    """Factor of the scores. None: 1/√D. "learned": a parameter for each head, initialised to
    1/√D."""
    key_value_heads: int | None = None
    """Number G of key and value heads; each is shared by H / G neighbouring query heads (Ainslie et
    al. 2023). None: H."""
    head_dim: int | None = None
    """Width D of a head. None: E / H."""
    qk_norm: float | None = None
    """The epsilon of an RMSNorm of each head of queries and keys, before any rotation (Henry et al.
    2020; here as in Qwen 3). None: no norm."""
    rule: Rule = EVERYTHING
    """Rule of self-attention: which keys a query may attend to, and changes to the scores
    (`ops.rules`). The rule of the context is added to it."""
    relative: Relative | None = None
    """T5's relative positions: a learned bias of the scores by head and distance. None: none."""
    function: Function | None = None
    """A function of the scores of self-attention, applied last, with parameters to learn."""
    sinks: bool = False
    """Whether each head learns the score of a sink: an extra key without a value."""
    rotate: Rotate | None = None
    """The op that rotates queries and keys by their positions. None: no rotation."""
    angles: Angles = PLAIN
    """The rotation frequencies."""
    rotate_cross: bool = False
    """Whether cross-attention rotates too: queries and keys by their positions, each in its own
    sequence. It suits output that follows the input, as an inflected form follows its lemma."""

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
        """The number G of key and value heads; H if `key_value_heads` is None."""
        return self.key_value_heads or self.num_heads

    @property
    def width(self) -> int:
        """The width of all query heads together, H · D; it is E unless `head_dim` is set."""
        return self.num_heads * self.head_width

    def of_memory(self) -> AttentionConfig:
        """Return the config for cross-attention.

        It leaves out `relative`, `function`, and the parts of `rule` that forbid keys or depend on
        distances: positions of two different sequences cannot be compared. It keeps the rotation
        only with `rotate_cross`.
        """
        capped = Rule(score=tuple(x for x in self.rule.score if not isinstance(x, Distances)))
        rotate = self.rotate if self.rotate_cross else None
        return replace(self, rule=capped, relative=None, function=None, rotate=rotate)
