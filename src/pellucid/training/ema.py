"""The exponential moving average of a model's weights."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from pellucid.core.array import Array, like, namespace, to_host
from pellucid.nn.module import Parameter


class MovingAverage:
    """Keep an exponential moving average (EMA) a of every parameter θ.

        a ← d_t a + (1 − d_t) θ        after step t,  d_t = min(d, (1 + t) / (10 + t))

    d_t rises, so that the initial weights are forgotten soon. A decay d of 0.999 averages about the
    last 1,000 steps. Source: Polyak & Juditsky 1992 (averaging); TensorFlow's
    ExponentialMovingAverage (d_t).

    >>> weight = Parameter((1,), lambda g, shape: np.zeros(shape))
    >>> average = MovingAverage([("weight", weight)], decay=0.5)
    >>> weight.data += 1
    >>> average.update(step=100)
    >>> with average.in_place():
    ...     print(weight.data)
    [0.5]
    >>> weight.data
    array([1.], dtype=float32)
    """

    def __init__(self, parameters: Iterable[tuple[str, Parameter]], decay: float) -> None:
        self.decay = decay
        self._parameters = dict(parameters)
        self._averages = {name: _copy(p.learnt) for name, p in self._parameters.items()}

    def update(self, step: int) -> None:
        """Update the averages after step `step`, counted from 1."""
        rest = 1.0 - min(self.decay, (1 + step) / (10 + step))
        for name, average in self._averages.items():
            difference = self._parameters[name].learnt - average
            difference *= rest  # in place: no second array of the parameter's size
            average += difference

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the parameters their averages as values inside the `with`."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """Exchange the values of the parameters and their averages."""
        for name, average in self._averages.items():
            parameter = self._parameters[name]
            theta = parameter.learnt
            kept = _copy(theta)
            theta[...], average[...] = average, kept
            if parameter.master is not None:
                parameter.narrow(parameter.data.dtype)

    def state_dict(self) -> dict[str, np.ndarray]:
        """Return the averages as NumPy arrays by name; those in host memory are not copied."""
        return {name: to_host(average) for name, average in self._averages.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Copy averages by name, each of its parameter's shape; `KeyError` if one is missing.

        Other names in `state` are ignored.
        """
        for name, average in self._averages.items():
            average[...] = like(np.array(state[name]), average)


def _copy(x: Array) -> Array:
    return namespace(x).asarray(x, copy=True)
