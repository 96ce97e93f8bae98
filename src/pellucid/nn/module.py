"""The base of every layer: parameters with names, and a way back that is used once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from pellucid.errors import UserError

Array = np.ndarray
Init = Callable[[np.random.Generator, tuple[int, ...]], Array]
Forward = tuple[Any, Callable[..., Any]]
"""What `forward` returns: the output (one array, or a tuple) and the way back."""


class StateError(UserError, KeyError):
    """The names or shapes of a state dict do not fit the module; the text lists all of them."""

    def __str__(self) -> str:
        return str(self.args[0])


class Parameter:
    """An array that is learnt, and the gradient that has reached it so far (None: none yet).

    `init(generator, shape)` draws its first value.
    """

    def __init__(self, shape: tuple[int, ...], init: Init, dtype: Any = np.float32) -> None:
        self.shape = shape
        self.init = init
        self.data: Array = np.zeros(shape, dtype)
        self.grad: Array | None = None

    def accumulate(self, gradient: Array | None) -> None:
        """Add a gradient to those that came before: the only place in the code that does."""
        if gradient is not None:
            self.grad = gradient if self.grad is None else self.grad + gradient


class way_back:  # noqa: N801 - reads as what it marks: `@way_back def backward(dy)`
    """Mark a layer's backward closure as single-use: it lets go of its arrays when it is called.

    Raises `RuntimeError` on the second call.
    """

    def __init__(self, backward: Callable[..., Any]) -> None:
        self._backward: Callable[..., Any] | None = backward

    def __call__(self, *gradients: Any, **named: Any) -> Any:
        backward, self._backward = self._backward, None
        if backward is None:
            raise RuntimeError(
                "this backward was already called, and a backward is used once; call forward again"
            )
        return backward(*gradients, **named)


class Module:
    """A layer: parameters, parts, `forward(x) -> (y, backward)`.

    `backward(dy) -> dx` adds to `.grad` of every parameter used. `layer(x)` is the output alone.
    Parameters and parts are found as attributes, in the order they were set, torch's order:
    a module's own parameters first, then its parts.

    >>> from pellucid import nn
    >>> layer = nn.Linear(3, 2)
    >>> y, backward = layer.forward(np.ones((5, 3), np.float32))
    >>> backward(np.ones_like(y)).shape, layer.weight.grad.shape
    ((5, 3), (2, 3))
    """

    training: bool = True

    def forward(self, *inputs: Any, **options: Any) -> Forward:
        """Return the output and the way back. Every layer defines its own."""
        raise TypeError(f"{type(self).__name__} has no forward of its own; define one")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self.forward(*inputs, **options)[0]

    def parts(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules directly inside this one, with their attribute names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all inside it, with their full names."""
        yield prefix, self
        for name, part in self.parts():
            yield from part.modules(f"{prefix}.{name}" if prefix else name)

    def all_names(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every name of every parameter; a tied parameter comes once under each name."""
        for prefix, module in self.modules():
            for name, value in vars(module).items():
                if isinstance(value, Parameter):
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every parameter once, under its first name."""
        seen: set[int] = set()
        for name, parameter in self.all_names():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def parameters(self) -> Iterator[Parameter]:
        """Yield every parameter once."""
        return (parameter for _, parameter in self.named_parameters())

    def zero_grad(self) -> None:
        """Forget every gradient."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Self:
        """Switch dropout on (or off) here and in every part; return self."""
        for _, module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Switch dropout off here and in every part; return self."""
        return self.train(False)

    def initialise(self, seed: int | None) -> Self:
        """Draw every parameter anew from (seed, its full name); None leaves them as they are."""
        if seed is not None:
            for name, parameter in self.named_parameters():
                value = parameter.init(generator(seed, name), parameter.shape)
                parameter.data = np.ascontiguousarray(value, parameter.data.dtype)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Return every parameter's array under torch's key. They are the arrays, not copies."""
        return {name: parameter.data for name, parameter in self.all_names()}

    def load_state_dict(self, mapping: Mapping[str, Array], strict: bool = True) -> None:
        """Copy the arrays of `mapping` into the parameters; dtypes are converted to the module's.

        Raises `StateError`, and changes nothing, if any key is missing, unexpected or of another
        shape, or if the names of one tied parameter hold unequal values. `strict=False` skips
        missing and unexpected keys only.
        """
        own = dict(self.all_names())
        faults = [*_key_faults(own, mapping)] if strict else []
        loaded: dict[int, tuple[str, Parameter, Array]] = {}
        for name in own.keys() & mapping.keys():
            parameter, value = own[name], np.asarray(mapping[name])
            if value.shape != parameter.shape:
                faults.append(f"{name}: expected shape {parameter.shape}, got {value.shape}")
            elif id(parameter) in loaded:
                other, _, first = loaded[id(parameter)]
                if not np.array_equal(first, value):
                    faults.append(f"{name} and {other} are one tied parameter but differ")
            else:
                loaded[id(parameter)] = (name, parameter, value)
        if faults:
            raise StateError(
                f"the state does not fit this {type(self).__name__}:\n  " + "\n  ".join(sorted(faults))
            )
        for _, parameter, value in loaded.values():
            parameter.data = np.array(value, parameter.data.dtype)


def _key_faults(own: Iterable[str], given: Iterable[str]) -> Iterator[str]:
    own, given = set(own), set(given)
    yield from (f"{name}: missing" for name in own - given)
    yield from (f"{name}: unexpected" for name in given - own)


class ModuleList(Module):
    """Modules in a row, named 0, 1, 2, … as in torch."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._list = list(modules)

    def parts(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules with their numbers as names."""
        return ((str(i), module) for i, module in enumerate(self._list))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, i: int) -> Any:
        return self._list[i]


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the generator that draws the parameter `name`: its own, whatever else is built.

    >>> generator(0, "a").random() == generator(0, "a").random()
    True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(int.from_bytes(digest[:16], "little")))


# First values. Each takes (generator, shape).


def zeros(_: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """All 0."""
    return np.zeros(shape)


def ones(_: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """All 1."""
    return np.ones(shape)


def uniform(bound: float) -> Init:
    """Uniform on [−bound, bound)."""
    return lambda g, shape: g.uniform(-bound, bound, shape)


def normal(std: float) -> Init:
    """Normal with mean 0."""
    return lambda g, shape: std * g.standard_normal(shape)


def xavier_uniform(g: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Uniform with bound √(6 / (fan_in + fan_out)). Source: Glorot & Bengio 2010."""
    return uniform((6.0 / (shape[0] + shape[1])) ** 0.5)(g, shape)


def xavier_normal(g: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Normal with std √(2 / (fan_in + fan_out)); fans counted as torch does for (1, 1, E)."""
    receptive = int(np.prod(shape[2:]))
    return normal((2.0 / ((shape[0] + shape[1]) * receptive)) ** 0.5)(g, shape)
