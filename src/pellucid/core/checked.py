"""A checking mode that detects arrays which change between a forward and its backward.

A backward uses arrays that its forward was given. Writing into one of them in between, as an
optimizer step does, makes the gradient silently wrong. Inside `checked()` each forward takes a
digest of its arrays, and its backward compares the digests again.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pellucid.core.array import Array, to_host
from pellucid.core.vjp import Call, Result, Run, observing


class ChangedError(RuntimeError):
    """An array was changed between a forward and its backward."""


def checked(module: Any = None) -> AbstractContextManager[None]:
    """Check that no array changes between a layer's forward inside this block and its backward.

    It checks every array that is an argument of an op that a layer runs, and the masks and
    parameters of its attention rule, whether or not the backward reads them. Ops that are called
    directly (`ops.linear`), arrays in a list, and forwards in other threads are not checked. The
    backward may run after the block. With `module`, errors name a parameter as in the module's
    `state_dict`, unless it is narrowed. It costs one digest of each array in forward and one in
    backward.

    The backward raises `ChangedError` (a `RuntimeError`) naming the array.

    >>> from pellucid import nn
    >>> layer, x = nn.Linear(3, 2), np.ones((5, 3), np.float32)
    >>> with checked(layer):  # doctest: +ELLIPSIS
    ...     y, backward = layer.forward(x)
    ...     layer.weight.data += 1
    ...     backward(y)
    Traceback (most recent call last):
    pellucid.core.checked.ChangedError: weight (the weight of linear) was changed between...
    """
    state = {} if module is None else module.state_dict()
    names = {id(array): name for name, array in state.items()}

    def compare(call: Call, run: Run) -> Result:
        seen = [(array, name, _digest(array)) for array, name in _arrays(call, names)]
        y, backward = run(call)

        def compared(*gradients: Any, **named: Any) -> Any:
            for array, name, digest in seen:
                if _digest(array) != digest:
                    raise ChangedError(
                        f"{name} was changed between forward and backward, so the gradient would "
                        "be wrong; change it after the backward, or give forward a copy"
                    )
            return backward(*gradients, **named)

        return y, compared

    return observing(compare)


def _arrays(call: Call, names: Mapping[int, str]) -> Iterator[tuple[Array, str]]:
    """Yield the arrays that go into a call, each with its name for an error message.

    The masks and parameters of an attention rule count too.
    """
    for argument, value in call.arguments.items():
        held = [value]
        if hasattr(value, "allowed"):
            held += [getattr(part, "mask", None) for part in (*value.allowed, *value.score)]
            held += value.parameters
        for array in held:
            if hasattr(array, "dtype") and hasattr(array, "shape"):
                known = names.get(id(array)) or names.get(id(getattr(array, "base", None)))
                place = f"the {argument} of {call.op.__name__}"
                yield array, f"{known} ({place})" if known else place


def _digest(array: Array) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(to_host(array)).data, digest_size=16).digest()
