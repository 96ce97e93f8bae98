"""Every derivative written here by hand, held against finite differences on this machine.

`CASES` is the table: one row enrols an op or a layer. The row's function takes float64 arrays and
returns its output and its way back, so an op (a pair of functions) and a layer (a closure) are
checked alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid import nn, ops
from pellucid.nn.module import Module
from pellucid.ops.bias_act_dropout import ACTIVATIONS
from pellucid.pair import pair_of
from pellucid.rng import Rng

Array = np.ndarray
Forward = Callable[..., tuple[Any, Callable[..., Any]]]
"""inputs -> (output, backward); backward(gradient of the output) -> gradients of the inputs."""

TOLERANCE = 1e-7
RNG = Rng(5)
N, H, L, S, D, E, F, V, T = 2, 3, 5, 7, 11, 6, 13, 17, 19  # sizes that no mistake can confuse


class Case(NamedTuple):
    kind: str  # "op" or "layer"
    name: str
    forward: Forward
    inputs: tuple[Array, ...]


class Result(NamedTuple):
    kind: str
    name: str
    derivatives: int
    error: float  # the largest over the inputs

    @property
    def passed(self) -> bool:
        return self.error <= TOLERANCE


def gradient_check(forward: Forward, inputs: Sequence[Array], *, seed: int = 0) -> list[float]:
    """Return, for each input, how far its gradient lies from a central difference.

    With one random projection r of the output, L = Σ r ⊙ y, and one random direction v for each
    input x with gradient g: |(L(x + hv) − L(x − hv)) / 2h − ⟨g, v⟩| / max(‖g‖, |the difference|).
    ‖g‖ is the standard deviation of ⟨g, v⟩, so a projection that happens to cancel does no harm.

    >>> square = lambda x: (x * x, lambda dy: 2 * x * dy)
    >>> gradient_check(square, [np.ones((2, 3))])[0] < 1e-9
    True
    """
    generator = np.random.default_rng(seed)
    y, backward = forward(*inputs)
    projection = generator.standard_normal(np.shape(y))
    gradients = backward(projection)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    errors = []
    for i, (x, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        direction = generator.standard_normal(x.shape)
        h = 1e-5 * max(1.0, float(np.abs(x).max()))
        difference = 0.0
        for sign in (1, -1):
            moved = [*inputs[:i], x + sign * h * direction, *inputs[i + 1 :]]
            difference += sign * float(np.sum(forward(*moved)[0] * projection)) / (2 * h)
        scale = max(float(np.linalg.norm(gradient)), abs(difference), 1e-300)
        errors.append(abs(difference - float(np.sum(gradient * direction))) / scale)
    return errors


def run_checks() -> Iterator[Result]:
    """Check every case of the table, one after another."""
    for case in cases():
        errors = gradient_check(case.forward, case.inputs)
        yield Result(case.kind, case.name, len(errors), max(errors))


def cases() -> list[Case]:
    """The table. Dropout draws the same bits in every call, so it has a derivative too."""
    return [*_ops(), *_layers()]


def _op(name: str, *inputs: Array, **options: Any) -> Case:
    """An op by its name; integer arrays stand among the options and are held fixed."""
    f, f_backward = pair_of(getattr(ops, name))

    def forward(*arrays: Array) -> tuple[Any, Callable[..., Any]]:
        y, saved = f(*arrays, **options)
        return y, lambda dy: f_backward(dy, saved)

    shown = [f"{k}={v:.3g}" for k, v in options.items() if isinstance(v, float) and v]
    shown += [f"{k}={v}" for k, v in options.items() if isinstance(v, str) or v is True]
    shown += ["mask"] if "mask" in options else []
    return Case("op", f"{name}({', '.join(shown)})" if shown else name, forward, inputs)


def _embedding() -> Case:
    index = np.array([[1, 4, 1], [0, 2, 4]])

    def forward(weight: Array) -> tuple[Any, Callable[..., Any]]:
        y, saved = ops.embedding(index, weight)
        return y, lambda dy: ops.embedding_backward(dy, saved)

    return Case("op", "embedding", forward, (_normal(V, E),))


def _normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def _off_the_kink(*shape: int) -> Array:
    """Numbers at least 0.1 away from 0, where ReLU has no derivative."""
    x = _normal(*shape)
    x += np.copysign(0.1, x)
    return x


def _ops() -> list[Case]:
    x, w, b = _normal(N, L, E), _normal(F, E), _normal(F)
    q, k, v = _normal(N, H, L, D), _normal(N, H, S, D), _normal(N, H, S, E)
    hidden = np.zeros((N, 1, 1, S), bool)
    hidden[0, ..., -2:] = True
    hidden[1] = True  # nothing to attend to
    rows = [_normal(T, H, D) for _ in range(3)]
    cu: dict[str, Any] = {"cu_q": np.array([0, L, T]), "cu_k": np.array([0, S, T])}
    same: dict[str, Any] = {"cu_q": cu["cu_q"], "cu_k": cu["cu_q"]}
    dropped: dict[str, Any] = {"dropout": 0.3, "rng": RNG}
    target = np.arange(L) * 3 % V
    logits = _normal(L, V)
    scale, shift = 1.0 + 0.3 * _normal(E), _normal(E)
    bent, bend = _off_the_kink(N, L, F), 0.05 * np.tanh(b)
    return [
        _op("linear", x, w, b),
        _op("softmax", x),
        _op("log_softmax", x),
        _op("attention", q, k, v),
        _op("attention", q, k, v, scale=1.0 / D, **dropped),
        _op("attention", q, k, v, mask=hidden),
        _op("attention", q, k[..., :L, :], v[..., :L, :], causal=True),
        _op("packed_attention", *rows, **cu, causal=False, scale=None, dropout=0.0, rng=None),
        _op("packed_attention", *rows, **same, causal=True, scale=None, **dropped),
        _op("layer_norm", x, scale, shift),
        _op("layer_norm", x, scale, shift, eps=0.5),
        _op("relu", bent),
        _op("leaky_relu", bent, slope=0.1),
        _op("silu", x),
        _op("gelu", x),
        _op("gelu", x, approximate="tanh"),
        _op("dropout", x, p=0.3, rng=RNG),
        _embedding(),
        _op("cross_entropy", logits, target=target),
        _op("cross_entropy", logits, target=target, label_smoothing=0.1, reduction="sum"),
        _op("cross_entropy", logits, target=target, ignore_index=3, reduction="none"),
        _op("add_dropout_norm", x, x[::-1] ** 2, scale, shift, **dropped),
        *(_op("bias_act_dropout", bent, bend, activation=a, **dropped) for a in ACTIVATIONS),
        _op("linear_cross_entropy", x[0], _normal(V, E), _normal(V), target=target),
    ]


def _layer(layer: Module, *inputs: Array, name: str = "", **options: Any) -> Case:
    """A layer with its parameters among the inputs; the parameters move off their first values."""
    parameters = list(layer.parameters())
    values = [p.data + 0.1 * _normal(*p.shape) for p in parameters]

    def forward(*arrays: Array) -> tuple[Any, Callable[..., Any]]:
        for parameter, value in zip(parameters, arrays[len(inputs) :], strict=True):
            parameter.data = value
        out, back = layer.forward(*arrays[: len(inputs)], **options)

        def backward(dy: Array) -> tuple[Array, ...]:
            layer.zero_grad()
            dx = back(dy)
            grads = [np.zeros(p.shape) if p.grad is None else p.grad for p in parameters]
            return (*(dx if isinstance(dx, tuple) else (dx,)), *grads)

        return (out[0] if isinstance(out, tuple) else out), backward

    return Case("layer", name or type(layer).__name__, forward, (*inputs, *values))


def _layers() -> list[Case]:
    double: dict[str, Any] = {"dtype": np.float64}
    x, memory = _normal(N, L, E), _normal(N, S, E)
    stack: dict[str, Any] = {"activation": "gelu", "batch_first": True, **double}
    attend = nn.MultiheadAttention(E, H, dropout=0.3, batch_first=True, **double)
    return [
        _layer(nn.Linear(E, F, **double), x),
        _layer(nn.LayerNorm(E, **double), x),
        _layer(attend, x, memory, memory[::-1], rng=RNG),
        _layer(nn.TransformerEncoderLayer(E, H, F, 0.3, **stack), x, rng=RNG),
        _layer(nn.TransformerDecoderLayer(E, H, F, 0.3, **stack), x, memory, rng=RNG),
        _layer(nn.Transformer(E, H, 2, 2, F, 0.3, **stack), memory, x, rng=RNG),
    ]
