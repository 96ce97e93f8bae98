"""The gradient check: one random projection, central differences, one number per input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Forward = Callable[..., tuple[Any, Callable[..., Any]]]
"""inputs -> (output, backward); backward(gradient of each output) -> gradients of the inputs."""


def gradient_check(forward: Forward, inputs: Sequence[Array]) -> list[float]:
    """Return, for each input, how far its gradient lies from a central difference.

    With one random projection r of the output, L = Σ r ⊙ y, and one random direction v for each
    input x with gradient g: |(L(x + hv) − L(x − hv)) / 2h − ⟨g, v⟩| / max(‖g‖, |the difference|).
    ‖g‖ is the standard deviation of ⟨g, v⟩, so a projection that happens to cancel does no harm.
    The difference is taken at h and at h / 2 and extrapolated, (4 D(h/2) − D(h)) / 3, which leaves
    an error of order h⁴ and lets h stay far above rounding. Inputs must be float64 (`TypeError`);
    a gradient of another shape than its input is infinitely wrong.

    >>> square = lambda x: (x * x, lambda dy: 2 * x * dy)
    >>> gradient_check(square, [np.ones((2, 3))])[0] < 1e-9
    True
    """
    if not all(x.dtype == np.float64 for x in inputs):
        raise TypeError(
            f"gradient_check needs float64 inputs, got {[str(x.dtype) for x in inputs]}"
        )
    generator = np.random.default_rng(0)
    y, backward = forward(*inputs)
    projections = [None if a is None else generator.standard_normal(np.shape(a)) for a in listed(y)]
    gradients = [g for g in listed(backward(*projections)) if g is not None]

    def loss(i: int, moved: Array) -> float:
        outputs = listed(forward(*inputs[:i], moved, *inputs[i + 1 :])[0])
        pairs = zip(outputs, projections, strict=True)
        return sum(float(np.sum(a * r)) for a, r in pairs if r is not None)

    errors = []
    for i, (x, gradient) in enumerate(zip(inputs, gradients, strict=True)):
        if np.shape(gradient) != x.shape:
            errors.append(float("inf"))
            continue
        direction = generator.standard_normal(x.shape)
        h = 1e-3 * max(1.0, float(np.std(x)))
        whole, half = (
            (loss(i, x + step * direction) - loss(i, x - step * direction)) / (2 * step)
            for step in (h, h / 2)
        )
        difference = (4 * half - whole) / 3
        scale = max(float(np.linalg.norm(gradient)), abs(difference), 1e-300)
        errors.append(abs(difference - float(np.sum(gradient * direction))) / scale)
    return errors


def listed(values: Any) -> list[Any]:
    """Return one array as a list of one, a tuple as a list."""
    return list(values) if isinstance(values, tuple) else [values]
