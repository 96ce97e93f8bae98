"""The base class of all layers, `Module`, and `Parameter`; a backward can be called once."""

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
"""The result of `forward`: the output (an array, or a tuple of arrays) and its backward."""

_accumulating = threading.Lock()
"""Held while a gradient is added, since several threads may run backwards of one parameter."""


class StateError(UserError, KeyError):
    """A state dict does not fit the module: its names, shapes, or two values of a tied parameter.

    The message lists every misfit, or a prefix that all names have too many.
    """

    def __str__(self) -> str:
        return str(self.args[0])


def refuse_dtype(dtype: Any) -> None:
    """Raise `TypeError` unless a dtype is integer, float32, float64 or bfloat16.

    A dtype in another byte order than this machine's is refused too.
    """
    kind: Any = type(dtype)
    _refuse(kind, dtype)


@cache
def _refuse(_: Any, dtype: Any) -> None:
    """Do the work of `refuse_dtype`, cached.

    The type of the dtype is an argument so that the cache never compares dtypes of two libraries.
    """
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
    """An array that belongs to a module's state but is not learned."""

    def __init__(self, data: Array) -> None:
        self.shape = data.shape
        self.data = data


class Parameter(Buffer):
    """A learned array, `data`, with the sum of its gradients, `grad` (None: no gradient yet).

    `data` is zero until the module's `initialise` sets it to `init(generator, shape)`.
    `requires_grad = False` freezes it: gradients are discarded, and an optimizer skips parameters
    without a gradient. `fixed_row` is a row of a table that gets no gradient, even if several
    layers share the table. `packed` has the numbers of rows of the matrices that it holds, one
    above the other; empty, it is one. `master`, if set, is the full-precision array that is learned
    and saved; `data` is then a copy in a narrower dtype, used for computing.
    Raises `TypeError` for a dtype that `refuse_dtype` refuses, `ValueError` for a size that is
    negative or no whole number.
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
        self.packed: tuple[int, ...] = ()

    @property
    def learnt(self) -> Array:
        """The array that is learned and saved: `master` if there is one, else `data`."""
        return self.data if self.master is None else self.master

    def narrow(self, dtype: Any) -> None:
        """Keep the array as `master`, and compute with a copy of it in a narrower dtype."""
        self.master = self.learnt
        self.data = namespace(self.master).astype(self.master, dtype)

    def accumulate(self, gradient: Array | None) -> None:
        """Add a gradient to `grad`; do nothing for None, or if `requires_grad` is False.

        The first gradient is kept itself, a sum is a new array. Row `fixed_row` counts as zero, and
        the dtype is that of `master` if there is one. Thread-safe. Raises `ValueError` when the
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
        if self.master is not None:  # sum gradients in full precision
            gradient = namespace(gradient).astype(gradient, self.master.dtype, copy=False)
        with _accumulating:
            self.grad = gradient if self.grad is None else self.grad + gradient


class single_use:  # noqa: N801 - a decorator
    """Make a backward callable once, so that the arrays it holds are freed after the call.

    A second call raises `RuntimeError`.
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
    """Return (y, backward) whose backward accumulates the gradients of the parameters.

    `back(dy)` returns the gradients of the inputs, then one for each of `parameters` (None entries
    are skipped). The new backward returns only those of the inputs: one array, or a tuple.
    """

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
    """Base class of layers: parameters, submodules and `forward(x) -> (y, backward)`.

    `backward(dy) -> dx` adds to `.grad` of every parameter that was used, unless it is frozen.
    `layer(x)` returns the output alone. A NumPy output of `forward` is read-only if the backward
    reads it again; that of `layer(x)` can always be written to.
    Parameters and submodules are attributes. They are listed in the order in which they were first
    set, a module's own parameters before those of its submodules, as in torch.

    >>> import numpy as np
    >>> from pellucid import nn
    >>> layer = nn.Linear(3, 2)
    >>> y, backward = layer.forward(np.ones((5, 3), np.float32))
    >>> backward(np.ones_like(y)).shape, layer.weight.grad.shape
    ((5, 3), (2, 3))
    """

    training: bool = True

    def forward(self, *inputs: Any, **options: Any) -> Forward:
        """Return the output and its backward; subclasses override it, this raises `TypeError`."""
        raise TypeError(f"{type(self).__name__} has no forward of its own; define one")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return unlocked(self.forward(*inputs, **options)[0])

    def parts(self) -> Iterator[tuple[str, Module]]:
        """Yield (attribute name, submodule) for each direct submodule.

        Raises `TypeError` for layers in a plain list or tuple, which would be left out.
        """
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple) and any(isinstance(x, Module) for x in value):
                raise TypeError(
                    f"{type(self).__name__}.{name} is a plain list of layers, which would not "
                    "learn or be saved; write ModuleList([…])"
                )

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield (full name, module) for this and all submodules; a shared one once per name."""
        yield prefix, self
        for name, part in self.parts():
            yield from part.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all submodules, each once."""
        return iter({id(module): module for _, module in self.named_modules()}.values())

    def all_names(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (full name, parameter) for all parameters; a tied parameter once per name."""
        return ((name, value) for name, value in self._state() if isinstance(value, Parameter))

    def _state(self) -> Iterator[tuple[str, Buffer]]:
        """Yield all parameters and buffers with their full names; shared ones once per name."""
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Buffer):
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yield (full name, parameter) for every parameter once, under its first name."""
        seen: set[int] = set()
        for name, parameter in self.all_names():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield name, parameter

    def parameters(self) -> Iterator[Parameter]:
        """Yield every parameter once."""
        return (parameter for _, parameter in self.named_parameters())

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        for parameter in self.parameters():
            parameter.grad = None

    def train(self, mode: bool = True) -> Self:
        """Set training mode (dropout is active) here and in all submodules; return self."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode (dropout is off) here and in all submodules; return self."""
        return self.train(False)

    def initialise(self, seed: int | None) -> Self:
        """Initialise every parameter from (seed, its full name); None does nothing.

        Returns self.
        """
        if seed is not None:
            for name, parameter in self.named_parameters():
                value = parameter.init(generator(seed, name), parameter.shape)
                _assign(parameter, value)
        return self

    def to(self, like_this: Array) -> Self:
        """Move all arrays to the library and device of the array `like_this`; dtypes are kept.

        (JAX by default stores 64 bits as 32.) The layers then compute with that library. Gradients
        are dropped, and `narrow` is undone.
        Returns self.

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
        """Compute with copies of the parameters in a narrower dtype, such as torch.bfloat16.

        The learned arrays keep their dtype (`Parameter.master`). Returns self.
        """
        for parameter in self.parameters():
            parameter.narrow(dtype)
        return self

    def state_dict(self) -> dict[str, Array]:
        """Return the arrays of all parameters and buffers by name, as in torch; not copies.

        For a narrowed parameter it is the full-precision array.
        """
        return {name: _kept(value) for name, value in self._state()}

    def load_state_dict(self, mapping: Mapping[str, Array], strict: bool = True) -> Incompatible:
        """Set parameters and buffers to copies of the arrays of `mapping`, in their own dtypes.

        Returns (missing_keys, unexpected_keys), both empty if `strict`. Values are not checked, as
        in torch: NaN is accepted, so that a diverged model can be inspected. (`pellucid.load`
        refuses NaN in a model folder.)

        Raises `StateError` and changes nothing if a key is missing or unexpected, an array has
        another shape, or the names of one tied parameter have different values. `strict=False`
        ignores missing and unexpected keys. Even then it is an error if all keys have a prefix too
        many.
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
    """Replace a buffer's array by a copy of a NumPy array, in its library, device and dtype.

    For a narrowed parameter set the full-precision array, and narrow it again.
    """
    old, kept = buffer.data, _kept(buffer)
    # C order, which the kernels need; loaded arrays may be transposed
    there = like(host.array(value, order="C"), old)
    buffer.data = namespace(old).astype(there, kept.dtype, copy=False)
    if kept is not old and isinstance(buffer, Parameter):
        buffer.master = None
        buffer.narrow(old.dtype)


def _kept(buffer: Buffer) -> Array:
    """Return the array that a state dict holds for this buffer or parameter."""
    return buffer.learnt if isinstance(buffer, Parameter) else buffer.data


class Incompatible(NamedTuple):
    """The keys that `load_state_dict(strict=False)` has ignored, under torch's names."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _value_faults(own: Mapping[str, Buffer], given: Mapping[str, Array]) -> list[str]:
    """Return an error for each array of another shape, and for tied names with different values."""
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
    """A list of modules, named 0, 1, 2, … as in torch."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._list = list(modules)

    def parts(self) -> Iterator[tuple[str, Module]]:
        """Yield (index as text, module) for each module."""
        return ((str(i), module) for i, module in enumerate(self._list))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._list)

    def __len__(self) -> int:
        return len(self._list)

    def __getitem__(self, i: int) -> Any:
        return self._list[i]
