"""Initialisers of parameters: functions or callable objects (generator, shape) -> array.

They draw with NumPy, from a generator that depends only on (seed, full name of the parameter). So a
parameter's initial values do not depend on which other parameters the model has.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from pellucid.core.array import Array, host

Generator = host.random.Generator
Init = Callable[[Generator, tuple[int, ...]], Array]


def generator(seed: int, name: str) -> Generator:
    """Return the random generator for a parameter, derived from the seed and its full name.

    >>> generator(0, "a").random() == generator(0, "a").random()
    True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return Generator(host.random.Philox(int.from_bytes(digest[:16], "little")))


@dataclass(frozen=True)
class constant:  # noqa: N801 - torch.nn.init's names
    """Set all elements to `value`."""

    value: float

    def __call__(self, _: Generator, shape: tuple[int, ...]) -> Array:
        return host.full(shape, self.value)


zeros, ones = constant(0.0), constant(1.0)


@dataclass(frozen=True)
class uniform:  # noqa: N801
    """Draw from the uniform distribution on [−bound, bound)."""

    bound: float

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        return g.uniform(-self.bound, self.bound, shape)


@dataclass(frozen=True)
class normal:  # noqa: N801
    """Draw from the normal distribution with mean 0 and standard deviation `std`."""

    std: float

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        return self.std * g.standard_normal(shape)


@dataclass(frozen=True)
class zero_row:  # noqa: N801
    """Apply another initialiser, then set one row to zero (an embedding's padding row)."""

    init: Init
    row: int

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        table = self.init(g, shape)
        table[self.row] = 0.0
        return table


def _fans(shape: tuple[int, ...]) -> int:
    """Return fan_in + fan_out of a shape with at least two axes.

    They are the sizes of the first two; further axes multiply both, as in torch.
    """
    return (shape[0] + shape[1]) * prod(shape[2:])


def xavier_uniform(g: Generator, shape: tuple[int, ...]) -> Array:
    """Draw uniformly with bound √(6 / (fan_in + fan_out)). Source: Glorot & Bengio 2010.

    For a matrix these are its two sizes. The shape needs at least two axes.
    """
    return uniform((6.0 / _fans(shape)) ** 0.5)(g, shape)


def xavier_normal(g: Generator, shape: tuple[int, ...]) -> Array:
    """Draw from a normal distribution with mean 0 and std √(2 / (fan_in + fan_out)).

    Torch does so for bias_k and bias_v. The fans are the sizes of the first two axes, both times
    those of further axes; the shape needs at least two.
    """
    return normal((2.0 / _fans(shape)) ** 0.5)(g, shape)
