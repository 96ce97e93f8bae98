"""Looking in: a recorder handed down with a call keeps the attention maps and their gradients."""

from __future__ import annotations

from dataclasses import dataclass, field

from pellucid.nn.module import Array


@dataclass
class AttentionMap:
    """What one attention layer did, all heads: arrays are (N, H, L, S)."""

    probabilities: Array
    """After the softmax, before dropout."""
    weights: Array
    """After dropout: what multiplied the values."""
    dweights: Array | None = None
    """Gradient that reached the weights; set by the backward pass."""
    dscores: Array | None = None
    """Gradient of the scaled scores; set by the backward pass."""


@dataclass
class Recorder:
    """Collects one `AttentionMap` per attention layer, by the layer's full name.

    Pass it to a call; layers keep nothing themselves. Attention layers that are recorded take the
    plain road, whose probabilities exist; without a recorder they never need to.

    >>> import numpy as np
    >>> from pellucid import nn
    >>> layer, recorder = nn.TransformerEncoderLayer(8, 2, 11).eval(), Recorder()
    >>> y = layer(np.ones((3, 5, 8), np.float32), recorder=recorder)
    >>> recorder.maps["self_attn"].weights.shape
    (5, 2, 3, 3)
    """

    maps: dict[str, AttentionMap] = field(default_factory=dict)
    prefix: str = ""

    def inside(self, name: str) -> Recorder:
        """Return a recorder for the part `name`, which writes to the same maps."""
        return Recorder(self.maps, f"{self.prefix}.{name}" if self.prefix else name)


def inside(recorder: Recorder | None, name: str) -> Recorder | None:
    """Return the part's recorder, or None when nothing is recorded."""
    return None if recorder is None else recorder.inside(name)
