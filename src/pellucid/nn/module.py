"""The base of every layer: parameters with names, and a backward that is used once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Self

from pellucid.core.array import Array, float32, host, like, namespace, to_host, unlocked
from pellucid.core.errors import UserError
from pellucid.core.vjp import check_gradient
from pellucid.nn.differences import rule
from pellucid.nn.init import Init, generator

Forward = tuple[Any, Callable[..., Any]]
"""Result of `forward`: the output (one array, or a tuple) and its backward."""

_accumulating = threading.Lock()
"""Held while a gradient is added: threads may run backward through one parameter."""


class StateError(UserError, KeyError):
    """The names or shapes of a state dict do not fit the module; the text lists all of them."""

    def __str__(self) -> str:
        return str(self.args[0])


def refuse_dtype(dtype: Any) -> None:
    """Raise `TypeError` for float16, and for what is neither a real number nor an integer."""
    kind: Any = type(dtype)
    _refuse(kind, dtype)


@cache
def _refuse(_: Any, dtype: Any) -> None:
    # The type first: dtypes of two libraries must not be compared with each other.
    name = str(dtype).rpartition(".")[2]
    if name == "float16":
        raise TypeError(f"expected float32 or float64, got float16: {rule('float16')}")
    if name[:1] in "<>" and name[1:2] in "iuf":
        raise TypeError(
            f"expected this machine's byte order, got {name}; convert an array x with "
            'x.astype(x.dtype.newbyteorder("="))'
        )
    if not name.startswith(("int", "uint")) and name not in ("float32", "float64", "bfloat16"):
        raise TypeError(
            f"expected float32 or float64, got {name}; convert it with .astype(np.float32)"
        )


class Buffer:
    """An array that belongs to a module's state and is not learnt."""

    def __init__(self, data: Array) -> None:
        self.shape = data.shape
        self.data = data


class Parameter(Buffer):
    """An array that is learnt, and the sum of the gradients that reached it (None: none yet).

    `init(generator, shape)` initialises it. `requires_grad = False` freezes it: gradients
    are not kept, and an optimiser leaves a parameter without a gradient as it is. `fixed_row` is a
    row of a table that gets no gradient, whichever layer uses the table. `master`, if set, is
    the array that is learnt and saved, and `data` a copy of it in a narrower dtype, to compute
    with.
    Raises `TypeError` for float16 and what is no real number, `ValueError` for a size that is none.
    """

    def __init__(self, shape: tuple[int, ...], init: Init, dtype: Any = float32) -> None:
        refuse_dtype(host.dtype(dtype))
        if not all(isinstance(size, (int, host.integer)) and size >= 0 for size in shape):
            raise ValueError(
                "the sizes of a parameter must be whole numbers of at least 0, got "
                + ", ".join(map(str, shape))
            )
        super().__init__(host.zeros(shape, dtype))
        self.init = init
        self.grad: Array | None = None
        self.master: Array | None = None
        self.requires_grad = True
        self.fixed_row: int | None = None

    @property
    def learnt(self) -> Array:
        """The array that is learnt and saved."""
        return self.data if self.master is None else self.master

    def narrow(self, dtype: Any) -> None:
        """Compute with a copy in this dtype of the array's library from now on."""
        self.master = self.learnt
        self.data = namespace(self.master).astype(self.master, dtype)

    def accumulate(self, gradient: Array | None) -> None:
        """Add a gradient to those that came before: the only place in the code that does.

        Safe when several threads run backward through one parameter. Raises `ValueError` when the
        gradient has another shape than the parameter.
        """
        if gradient is None or not self.requires_grad:
            return
        if gradient.shape != self.shape:
            check_gradient(gradient, self.shape, "its parameter")
        if self.fixed_row is not None:
            xp = namespace(gradient)
            rows = xp.arange(self.shape[0], device=gradient.device)[:, None]
            gradient = xp.where(rows == self.fixed_row, xp.zeros_like(gradient), gradient)
        if self.master is not None:  # gradients of several parts are summed in its dtype
            gradient = namespace(gradient).astype(gradient, self.master.dtype, copy=False)
        with _accumulating:
            self.grad = gradient if self.grad is None else self.grad + gradient


class single_use:  # noqa: N801 - reads as what it marks: `@single_use def backward(dy)`
    """Mark a layer's backward as single-use: its arrays are freed when it has run.

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


def learning(parameters: Sequence[Parameter | None], y: Any, back: Callable[..., Any]) -> Forward:
    """Return (y, backward): of the gradients of `back`, the last are those of the parameters."""

    @single_use
    def backward(*dy: Any) -> Any:
        gradients = back(*dy)
        inputs = len(gradients) - len(parameters)
        for parameter, gradient in zip(parameters, gradients[inputs:], strict=True):
            if parameter is not None:
                parameter.accumulate(gradient)
        return gradients[0] if inputs == 1 else gradients[:inputs]

    return y, backward


class Module:
    """A layer: parameters, parts, `forward(x) -> (y, backward)`.

    `backward(dy) -> dx` adds to `.grad` of every parameter used. An output that it reads again is
    read-only. `layer(x)` is the output alone, and can be written to.
    Parameters and parts are found as attributes, in the order they were set, torch's order:
    a module's own parameters first, then its parts.

    >>> import numpy as np
    >>> from pellucid import nn
    >>> layer = nn.Linear(3, 2)
    >>> y, backward = layer.forward(np.ones((5, 3), np.float32))
    >>> backward(np.ones_like(y)).shape, layer.weight.grad.shape
    ((5, 3), (2, 3))
    """

    training: bool = True

    def forward(self, *inputs: Any, **options: Any) -> Forward:
        """Return the output and its backward. Every layer defines its own."""
        raise TypeError(f"{type(self).__name__} has no forward of its own; define one")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return unlocked(self.forward(*inputs, **options)[0])

    def parts(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules directly inside this one, with their attribute names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all inside it with full names; a shared one comes under each."""
        yield prefix, self
        for name, part in self.parts():
            yield from part.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all inside it, each once."""
        return iter({id(module): module for _, module in self.named_modules()}.values())

    def all_names(self) -> Iterator[tuple[str, Parameter]]:
        """Yield every name of every parameter; a tied parameter comes once under each name."""
        return ((name, value) for name, value in self._state() if isinstance(value, Parameter))

    def _state(self) -> Iterator[tuple[str, Buffer]]:
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Buffer):
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
        for module in self.modules():
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
                _assign(parameter, value)
        return self

    def to(self, like_this: Array) -> Self:
        """Move every array to the library and the device of `like_this`; dtypes stay.

        Gradients are dropped. The same layers then compute in that library. A parameter that was
        narrowed is as wide again as what is learnt of it.

        >>> import numpy as np
        >>> from pellucid import nn
        >>> layer = nn.Linear(3, 2).to(np.ones(1))
        """
        for _, value in self._state():
            value.data = like(to_host(_kept(value)).copy(), like_this)
            if isinstance(value, Parameter):
                value.grad = value.master = None
        return self

    def narrow(self, dtype: Any) -> Self:
        """Compute in a narrower dtype of the arrays' library; learnt arrays keep their dtype."""
        for parameter in self.parameters():
            parameter.narrow(dtype)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Return every parameter's array under torch's key. They are the arrays, not copies."""
        return {name: _kept(value) for name, value in self._state()}

    def load_state_dict(self, mapping: Mapping[str, Array], strict: bool = True) -> Incompatible:
        """Copy the arrays of `mapping` into the parameters; dtypes are converted to the module's.

        Values are not checked, as in torch: a NaN is loaded, so that a diverged model can be looked
        at. `pellucid.load` refuses one in a model folder.

        Raises `StateError`, and changes nothing, if any key is missing, unexpected or of another
        shape, or if the names of one tied parameter hold unequal values. `strict=False` forgives
        missing and unexpected keys only, and returns them; not a prefix before every key.
        """
        own = dict(self._state())
        missing = [name for name in own if name not in mapping]
        unexpected = [name for name in mapping if name not in own]
        faults = _value_faults(own, mapping)
        if strict:
            faults += [f"{name}: missing, expected shape {own[name].shape}" for name in missing]
            faults += [f"{name}: unexpected" for name in unexpected]
        first = next(iter(unexpected), "")
        ends = [name for name in own if first.endswith(f".{name}")]
        wrapper = first.removesuffix(max(ends, key=len, default=first))
        bare = [name.removeprefix(wrapper) for name in unexpected]
        if bare and len(bare) == len(mapping) and own.keys() >= set(bare):
            raise StateError(
                f"every name begins with {wrapper}, as in a model that was compiled or wrapped "
                f"when it was saved: take it off, as in {{k.removeprefix({wrapper!r}): x for k, x "
                "in state.items()}"
            )
        if faults:
            raise StateError(
                f"the state does not fit this {type(self).__name__}; change these keys, or load "
                "with strict=False to forgive missing and unexpected ones:\n  "
                + "\n  ".join(sorted(faults))
            )
        for name, value in own.items():
            if name in mapping:
                _assign(value, to_host(mapping[name]))
        return Incompatible(missing, unexpected)


def _assign(buffer: Buffer, value: Array) -> None:
    """Copy host values into a buffer, in the buffer's library and dtype."""
    old = buffer.data
    if isinstance(old, host.ndarray):
        # row by row: the kernels take no other order, and loaded arrays may be transposed
        buffer.data = host.array(value, old.dtype, order="C")
    else:
        xp = namespace(old)
        there, kept = like(host.array(value, order="C"), old), _kept(buffer)
        buffer.data = xp.astype(there, kept.dtype)
        if kept is not old and isinstance(buffer, Parameter):
            buffer.master = None
            buffer.narrow(old.dtype)


def _kept(buffer: Buffer) -> Array:
    """Return the array that a state dict holds."""
    return buffer.learnt if isinstance(buffer, Parameter) else buffer.data


class Incompatible(NamedTuple):
    """The names that `load_state_dict(strict=False)` ignored, in torch's format."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _value_faults(own: Mapping[str, Buffer], given: Mapping[str, Array]) -> list[str]:
    """Say which arrays have another shape, and which names of one tied parameter differ."""
    faults = []
    first_name: dict[int, str] = {}
    for name in own.keys() & given.keys():
        shape = host.shape(given[name])
        if shape != own[name].shape:
            faults.append(f"{name}: expected shape {own[name].shape}, got {shape}")
            continue
        other = first_name.setdefault(id(own[name]), name)
        if not host.array_equal(to_host(given[other]), to_host(given[name]), equal_nan=True):
            both = " and ".join(sorted((other, name)))
            faults.append(f"{both}: one tied parameter, but two values; make them equal")
    return faults


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
