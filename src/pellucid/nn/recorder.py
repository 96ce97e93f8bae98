"""Looking in: a recorder handed down with a call keeps attention maps, rows, and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.array import Array, locked
from pellucid.ops.attention import Saved, score_gradient
from pellucid.ops.dropout import dropout_backward


@dataclass
class AttentionMap:
    """What one attention layer did, all heads: (N, H, L, S) arrays unless they say otherwise."""

    probabilities: Array
    """After the softmax, before dropout."""
    weights: Array
    """After dropout: what multiplied the values."""
    q: Array
    """Queries of every head, (N, H, L, D), before any scale; with `k` and `scale` they give the
    scores again."""
    k: Array
    """Keys, (N, H, S, D)."""
    v: Array
    """Values, (N, H, S, D)."""
    scale: float | Array
    """What q·k was multiplied by: a number, or what each head has learnt, (H, 1, 1)."""
    causal: bool
    """Whether key s > query l was forbidden."""
    doutputs: Array | None = None
    """Gradient of the heads' outputs (N, H, L, D); set by the backward pass, like those below."""
    dweights: Array | None = None
    """Gradient of `weights`."""
    dprobabilities: Array | None = None
    """Gradient of `probabilities`."""
    dscores: Array | None = None
    """Gradient of the scaled scores, which is also that of an added mask."""
    dprojections: tuple[Array, Array, Array] | None = None
    """Gradients of what the projections to queries, keys and values returned, before any norm,
    rotation or scale: (T, H, D) and twice (U, G, D), G heads of keys and values. In `run` only."""

    def take_gradients(self, dheads: Array, saved: Saved, dweights: Array | None = None) -> None:
        """Set the gradients from that of the heads' outputs (N, H, L, D)."""
        self.doutputs = dheads
        self.dweights, self.dscores = score_gradient(dheads, saved, dweights)
        self.dprobabilities = dropout_backward(self.dweights, saved.dropout)


@dataclass
class Rows:
    """What one part of a model was given and what it returned, rows (T, E)."""

    x: Array
    y: Array
    dx: Array | None = None
    """Gradient of `x` through this part alone; set by the backward pass, like `dy`."""
    dy: Array | None = None


@dataclass
class Recorder:
    """Collects one `AttentionMap` per attention layer, by the layer's full name, and `Rows`.

    Pass it to a call; layers keep nothing themselves. Attention that is recorded runs the reference
    page, whose probabilities exist; without a recorder they never need to. A layer that runs twice
    under one recorder leaves its last map.

    `rows` has every residual step by the layer's name and the step's number, "layers.0.1", its
    sublayer as "layers.0.1.sublayer", and a stack's last norm as "norm".

    >>> import numpy as np
    >>> from pellucid import nn
    >>> layer, recorder = nn.TransformerEncoderLayer(8, 2, 11).eval(), Recorder()
    >>> y = layer(np.ones((3, 5, 8), np.float32), recorder=recorder)
    >>> recorder.maps["self_attn"].weights.shape
    (5, 2, 3, 3)
    >>> sorted(recorder.rows)
    ['0', '0.sublayer', '1', '1.sublayer']
    """

    maps: dict[str, AttentionMap] = field(default_factory=dict)
    prefix: str = ""
    rows: dict[str, Rows] = field(default_factory=dict)

    def inside(self, name: str) -> Recorder:
        """Return a recorder for the part `name`, which writes to the same maps and rows."""
        return Recorder(self.maps, f"{self.prefix}.{name}" if self.prefix else name, self.rows)

    def map_of(self, path: str) -> AttentionMap:
        """Return the map of an attention layer that ran under this recorder."""
        return self.maps[self._named(path)]

    def _named(self, path: str) -> str:
        return ".".join(filter(None, (self.prefix, path)))

    def watch(
        self, path: str, x: Array, forward: tuple[Array, Callable[..., Any]]
    ) -> tuple[Array, Callable[..., Any]]:
        """Keep what a part made of rows x; return its (y, backward), which sets the gradients.

        backward(dy) returns dx, alone or first of a tuple.
        """
        y, part_backward = forward
        seen = Rows(locked(x), locked(y))
        self.rows[self._named(path)] = seen

        def backward(dy: Array) -> Any:
            dx = part_backward(dy)
            seen.dx, seen.dy = locked(dx[0] if isinstance(dx, tuple) else dx), locked(dy)
            return dx

        return y, backward


def record(
    recorder: Recorder,
    path: str,
    saved: Saved,
    causal: bool,
    unscaled: tuple[Array, Array] | None = None,
) -> AttentionMap:
    """Keep the map of an attention that ran, read-only, and return it.

    unscaled: where each head learns its scale, the queries (N, H, L, D) before it, and it, (H,).
    """
    q: Array = saved.q
    scale: float | Array = saved.scale
    if unscaled is not None:
        q, scale = unscaled[0], unscaled[1][:, None, None]
    probabilities, weights = locked(saved.probabilities), locked(saved.weights)
    seen = AttentionMap(
        probabilities, weights, locked(q), locked(saved.k), locked(saved.v), scale, causal
    )
    recorder.maps[recorder._named(path)] = seen
    return seen
