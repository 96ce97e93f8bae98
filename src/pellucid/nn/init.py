"""How parameters are initialised. Each initialiser takes (generator, shape) and is a value.

They draw in NumPy, from a generator that depends on (seed, the parameter's full name) alone.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from pellucid.core.array import Array, host

Generator = host.random.Generator
Init = Callable[[Generator, tuple[int, ...]], Array]


def generator(seed: int, name: str) -> Generator:
    """Return the generator for the parameter `name`; it does not depend on other parameters.

    >>> generator(0, "a").random() == generator(0, "a").random()
    True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return Generator(host.random.Philox(int.from_bytes(digest[:16], "little")))


@dataclass(frozen=True)
class constant:  # noqa: N801 - torch.nn.init's names
    """All the same."""

    value: float

    def __call__(self, _: Generator, shape: tuple[int, ...]) -> Array:
        return host.full(shape, self.value)


zeros, ones = constant(0.0), constant(1.0)


@dataclass(frozen=True)
class uniform:  # noqa: N801
    """Uniform on [−bound, bound)."""

    bound: float

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        return g.uniform(-self.bound, self.bound, shape)


@dataclass(frozen=True)
class normal:  # noqa: N801
    """Normal with mean 0."""

    std: float

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        return self.std * g.standard_normal(shape)


@dataclass(frozen=True)
class zero_row:  # noqa: N801
    """Another initialiser, one row set to zero."""

    init: Init
    row: int

    def __call__(self, g: Generator, shape: tuple[int, ...]) -> Array:
        table = self.init(g, shape)
        table[self.row] = 0.0
        return table


def _fans(shape: tuple[int, ...]) -> int:
    """fan_in + fan_out, counted as torch does when there are more than two axes."""
    return (shape[0] + shape[1]) * prod(shape[2:])


def xavier_uniform(g: Generator, shape: tuple[int, ...]) -> Array:
    """Uniform with bound √(6 / (fan_in + fan_out)). Source: Glorot & Bengio 2010."""
    return uniform((6.0 / _fans(shape)) ** 0.5)(g, shape)


def xavier_normal(g: Generator, shape: tuple[int, ...]) -> Array:
    """Normal with std √(2 / (fan_in + fan_out)); torch's initialisation of bias_k and bias_v."""
    return normal((2.0 / _fans(shape)) ** 0.5)(g, shape)
