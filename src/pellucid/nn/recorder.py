"""Record attention maps, hidden states and their gradients while a model runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pellucid.core.array import Array, locked
from pellucid.core.vjp import Call, Observing, Result, Run, composite
from pellucid.ops import rules
from pellucid.ops.attention import Saved, score_gradient
from pellucid.ops.dropout import dropout_backward
from pellucid.ops.packed_attention import padded_heads


@dataclass
class AttentionMap:
    """The arrays that one attention layer computed, (N, H, L, S) unless stated otherwise."""

    probabilities: Array
    """After the softmax, before dropout."""
    weights: Array
    """After dropout; the factors of the values."""
    q: Array
    """Queries of every head, (N, H, L, D), before scaling: the scores are `scale` · q kᵀ."""
    k: Array
    """Keys, (N, H, S, D)."""
    v: Array
    """Values, (N, H, S, D)."""
    scale: float | Array
    """The factor of q·k: a number, or a learned number for each head, (H, 1, 1)."""
    causal: bool
    """Whether key s > query l was forbidden."""
    doutputs: Array | None = None
    """Gradient of the heads' outputs (N, H, L, D). This and all below are set by the backward."""
    dweights: Array | None = None
    """Gradient of `weights`."""
    dprobabilities: Array | None = None
    """Gradient of `probabilities`."""
    dscores: Array | None = None
    """Gradient of the scores that enter the softmax, which is also that of an added mask."""
    dprojections: tuple[Array, ...] = ()
    """Gradients of the projections' outputs: (T, (H + 2 G) · D) for queries, keys and values in
    self-attention; queries (T, H · D), then keys and values (U, 2 G · D) in cross-attention. G is
    the number of key and value heads."""


@dataclass
class Rows:
    """Input and output of one part of a model, as rows (T, E), and their gradients."""

    x: Array
    y: Array
    dx: Array | None = None
    """Gradient of `x` through this part; set by the backward pass, like `dy`."""
    dy: Array | None = None


@dataclass
class Recorder(Observing):
    """Records an `AttentionMap` of each attention layer and `Rows` of each residual step.

    It records the calls inside `with Recorder() as recorder:` in this thread, and their backwards
    whenever those run. Attention then runs as the reference op, because fused kernels never hold
    the array of probabilities. If a layer runs twice, its last map is kept.

    `maps` has the maps by the layer's full name. `rows` has each residual step by layer and number,
    as "layers.0.1", its sublayer as "layers.0.1.sublayer", and a stack's final norm as "norm".

    >>> import numpy as np
    >>> from pellucid import nn
    >>> layer = nn.TransformerEncoderLayer(8, 2, 11).eval()
    >>> with Recorder() as recorder:
    ...     y = layer(np.ones((3, 5, 8), np.float32))
    >>> recorder.maps["self_attn"].weights.shape
    (5, 2, 3, 3)
    >>> sorted(recorder.rows)
    ['0', '0.sublayer', '1', '1.sublayer']
    """

    maps: dict[str, AttentionMap] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    _unscaled: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    """By layer: queries before the learned scale of each head, and the scales."""
    _dweights: dict[str, Array] = field(default_factory=dict)
    """By layer: the gradient of attention weights that the layer returned."""
    _projected_to: dict[str, list[AttentionMap]] = field(default_factory=dict)
    """By layer: a list that will hold the map of the next attention call, which runs after the
    projections whose gradients it needs."""

    def __call__(self, call: Call, run: Run) -> Result:
        """Run one call, and record it if it is attention, a projection or a part of a model."""
        name = call.op.__name__
        if name == "packed_attention":
            return self._attend(call, run)
        if name == "attention_weights":
            return self._weights(call, run)
        if name == "head_scale":
            self._unscaled[call.path] = call.q, call.scale + 0.0
        y, backward = run(call)
        if name == "linear":
            return y, self._projected(call.path, backward)
        if call.op is composite:
            return self._part(call, y, backward)
        return y, backward

    def _attend(self, call: Call, run: Run) -> Result:
        """Run attention as the reference op; record its map, and the gradients in the backward."""
        call.keep = True
        y, backward = run(call)
        saved: Saved = call.saved.attention
        q, scale = saved.q, saved.scale
        if call.path in self._unscaled:
            q, scales = self._unscaled.pop(call.path)
            q, scale = padded_heads(q, call.cu_q), scales[:, None, None]
        probabilities, weights = locked(saved.probabilities), locked(saved.weights)
        causal = set(rules.causal.allowed) <= set(call.rule.allowed)
        seen = AttentionMap(
            probabilities, weights, locked(q), locked(saved.k), locked(saved.v), scale, causal
        )
        self.maps[call.path] = seen
        self._projected_to.pop(call.path, []).append(seen)

        def recorded(dy: Array) -> Any:
            given = self._dweights.pop(call.path, None)
            seen.doutputs = padded_heads(dy, call.cu_q)
            seen.dweights, seen.dscores = score_gradient(seen.doutputs, saved, given)
            seen.dprobabilities = dropout_backward(seen.dweights, saved.dropout)
            return backward(dy)

        return y, recorded

    def _weights(self, call: Call, run: Run) -> Result:
        """Record the gradient of attention weights that the layer returned."""
        y, backward = run(call)
        heads = call.q.shape[1]

        def recorded(dw: Array) -> Any:
            self._dweights[call.path] = (dw / heads)[:, None, ...] if call.average else dw
            return backward(dw)

        return y, recorded

    def _projected(self, path: str, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a projection's backward so that it adds its gradient to the layer's next map."""
        maps = self._projected_to.setdefault(path, [])

        def recorded(dy: Array) -> Any:
            for seen in maps:
                seen.dprojections = (*seen.dprojections, locked(dy))
            return backward(dy)

        return recorded

    def _part(self, call: Call, y: Array, backward: Callable[..., Any]) -> Result:
        """Record the input and output of a part of the model, and their gradients."""
        seen = self.rows[call.path] = Rows(locked(call.x), locked(y))

        def recorded(dy: Array) -> Any:
            dx = backward(dy)
            seen.dx, seen.dy = locked(dx[0] if isinstance(dx, tuple) else dx), locked(dy)
            return dx

        return y, recorded
