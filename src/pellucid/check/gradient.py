"""The gradient check: one random projection, central differences, one number per array."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pellucid.nn.module import Module, Parameter

Array = np.ndarray
Forward = Callable[..., tuple[Any, Callable[..., Any]]]
"""inputs -> (output, backward); backward(gradient of each output) -> gradients of the inputs."""


def gradient_check(
    forward: Module | Forward, inputs: Sequence[Array], **fixed: Any
) -> dict[str, float]:
    """Compare each gradient with central differences.

    Returns the relative errors by array name.

    forward: a layer, or a function like a layer's `forward`. The arrays are named "input 0",
    "input 1", …; those of a layer, or of its method, also include its learned parameters, by full
    name. (If a function calls a layer, its parameters are not checked: check the layer itself.)
    fixed: further arguments, without gradients (integers, masks, rng). A copy of the layer is used.

    `forward` is called twice, with the inputs and with slightly different ones, before either
    backward. So an error is found in a layer that stores on itself what its backward needs, or that
    overwrites gradients of parameters instead of adding them. With a random projection r of each
    output, L = Σ r ⊙ y, and a random direction v for each array x with gradient g, the error is
    |(L(x + hv) − L(x − hv)) / 2h − ⟨g, v⟩| / max(‖g‖, |the difference quotient|).
    ‖g‖ is the standard deviation of ⟨g, v⟩, so that a value near 0 by chance does no harm. It
    counts as at least 1/1000 of the largest ‖g‖, because a gradient that is zero in exact
    arithmetic (that of the bias of attention's keys) consists of rounding errors.
    The quotients at h and h / 2 are extrapolated, (4 D(h/2) − D(h)) / 3, which leaves an error of
    order h⁴ and allows an h far above rounding. A gradient that has NaN or another shape than its
    array gets the error ∞.

    Raises `TypeError` for arrays that are not float64, `ValueError` if there is nothing to check or
    the backward does not return one gradient for each input.

    >>> square = lambda x: (x * x, lambda dy: 2 * x * dy)
    >>> gradient_check(square, [np.ones((2, 3))])["input 0"] < 1e-9
    True
    >>> from pellucid import nn
    >>> list(gradient_check(nn.Linear(3, 2, dtype=np.float64), [np.ones((2, 3))]))
    ['input 0', 'weight', 'bias']
    """
    return _errors(*enrolled(forward, inputs, **fixed))


def enrolled(
    forward: Module | Forward, inputs: Sequence[Array], **fixed: Any
) -> tuple[Forward, dict[str, Array]]:
    """Turn a layer or function into a function of all arrays that have a gradient.

    Returns (function, the arrays by name). The arrays are the inputs and the learned parameters.
    The function calls the layer twice, as `gradient_check` describes, which also has the errors.
    """
    forward = copy.deepcopy(forward)  # its parameters will be changed
    layer = forward if isinstance(forward, Module) else getattr(forward, "__self__", None)
    named = layer.named_parameters() if isinstance(layer, Module) else ()
    learnt = {name: parameter for name, parameter in named if parameter.requires_grad}
    arrays = {f"input {i}": x for i, x in enumerate(inputs)}
    arrays |= {name: parameter.data for name, parameter in learnt.items()}
    if not arrays:
        raise ValueError("gradient_check needs an input or a parameter that has a gradient")
    for name, x in arrays.items():
        if x.dtype != np.float64:
            raise TypeError(f"gradient_check needs float64 arrays, got {name} of {x.dtype}")
    call = partial(forward.forward if isinstance(forward, Module) else forward, **fixed)
    return _called_twice(call, len(inputs), list(learnt.values())), arrays


def _called_twice(call: Forward, count: int, learnt: Sequence[Parameter]) -> Forward:
    """Return a function of the inputs and parameter arrays that calls `call` twice.

    Its outputs are those of both calls, and its gradients are added up.
    """

    def forward(*arrays: Array) -> tuple[Any, Callable[..., Any]]:
        for parameter, data in zip(learnt, arrays[count:], strict=True):
            parameter.data, parameter.grad = data, None
        generator = np.random.default_rng(1)
        away = [x + 0.01 * generator.standard_normal(x.shape) for x in arrays[:count]]
        (y, backward), (other_y, other_backward) = call(*arrays[:count]), call(*away)
        first = len(listed(y))

        def backwards(*dys: Array) -> list[Array]:
            used = backward(*dys[:first]), other_backward(*dys[first:])
            dxs, others = (_of_inputs(dx, count) for dx in used)
            added = [a + b for a, b in zip(dxs, others, strict=True)]
            # None means that the gradient is zero, which is checked as well
            return added + [np.zeros(p.shape) if p.grad is None else p.grad for p in learnt]

        return (*listed(y), *listed(other_y)), backwards

    return forward


def _of_inputs(dx: Any, count: int) -> list[Array]:
    """Return the gradients that a backward returned.

    Raises `ValueError` unless one per input.
    """
    given = listed(dx)
    found = [g for g in given if g is not None]
    if len(found) > count:
        raise ValueError(f"backward returned {len(found)} gradients for {count} inputs")
    if len(found) < count:
        missing = next(i for i in range(count) if i >= len(given) or given[i] is None)
        raise ValueError(
            f"backward returned no gradient for input {missing}; an input without one is passed "
            "by name, not in `inputs`"
        )
    return found


def _errors(forward: Forward, arrays: Mapping[str, Array]) -> dict[str, float]:
    """Return the relative error of each gradient, as `gradient_check` describes."""
    values, generator = list(arrays.values()), np.random.default_rng(2)
    ys, backward = forward(*values)
    projections = [None if y is None else generator.standard_normal(np.shape(y)) for y in ys]
    gradients = backward(*projections)
    largest = max(float(np.linalg.norm(g)) for g in gradients)

    def loss(i: int, moved: Array) -> float:
        outputs = forward(*values[:i], moved, *values[i + 1 :])[0]
        pairs = zip(outputs, projections, strict=True)
        return sum(float(np.sum(y * r)) for y, r in pairs if r is not None)

    errors = {}
    for i, ((name, x), gradient) in enumerate(zip(arrays.items(), gradients, strict=True)):
        if np.shape(gradient) != x.shape:
            errors[name] = float("inf")
            continue
        direction = generator.standard_normal(x.shape)
        h = 1e-3 * max(1.0, float(np.std(x)))
        whole, half = (
            (loss(i, x + step * direction) - loss(i, x - step * direction)) / (2 * step)
            for step in (h, h / 2)
        )
        difference = (4 * half - whole) / 3
        scale = max(float(np.linalg.norm(gradient)), abs(difference), 1e-3 * largest, 1e-300)
        error = abs(difference - float(np.sum(gradient * direction))) / scale
        errors[name] = error if error == error else float("inf")  # max() may lose a NaN
    return errors


def listed(values: Any) -> list[Any]:
    """Convert a tuple to a list, and a single array to a list of one."""
    return list(values) if isinstance(values, tuple) else [values]
