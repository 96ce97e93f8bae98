"""Apply an optimizer to the parameters of a model; clip gradients by their global norm.

Training changes parameters in `ModelOptimizer.step` alone. It runs the optimizer's fused kernel if
there is one for these arrays, otherwise the optimizer's reference function.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np

from pellucid.core import dispatch
from pellucid.core.array import Array, like, namespace, to_host
from pellucid.core.errors import UserError
from pellucid.core.settings import changes
from pellucid.core.vjp import Call, Declined, check_gradient
from pellucid.nn.module import Parameter
from pellucid.optim import OPTIMIZERS, Optimizer
from pellucid.optim.config import OptimizerConfig


def global_norm(gradients: Iterable[Array]) -> float:
    """Return √Σ g² over all elements of all arrays, summed in float64 in a fixed order.

    The square of a float32 gradient cannot overflow in float64. A fused kernel computes it if there
    is one.

    >>> global_norm([np.array([3.0]), np.array([[4.0]])])
    5.0
    """
    arrays = [_whole(g, g.dtype) for g in gradients]
    fused = dispatch.fused(Call(cast(Any, global_norm), (arrays,), {}))
    if not isinstance(fused, Declined):
        return float(fused[0])
    total = 0.0
    for g in map(to_host, arrays):
        # einsum uses one thread and no BLAS, so the order does not depend on the number of threads
        flat = np.ravel(g)
        total += float(np.einsum("i,i->", flat, flat, dtype=np.float64))
    return math.sqrt(total)


def _whole(x: Array, dtype: Any) -> Array:
    """Return x as a contiguous, writeable array of this dtype; copies only if necessary."""
    if not isinstance(x, np.ndarray):
        return namespace(x).astype(x, dtype, copy=False)
    if x.dtype == dtype and x.flags.carray:
        return x
    return np.require(x, dtype, ["C", "W"])


def clip_factor(norm: float, limit: float) -> float:
    """Return the factor that clips a gradient of this norm to the norm `limit`.

    As in torch it is limit / (norm + 1e-6), at most 1. A norm of NaN gives NaN.

    >>> clip_factor(0.5, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.25)
    """
    return min(limit / (norm + 1e-6), 1.0)  # in this order, min keeps NaN


@dataclass
class _Slot:
    """A parameter with the optimizer's states and its number of steps so far."""

    parameter: Parameter
    owner: Optimizer
    """The optimizer that steps it."""
    states: tuple[Array, ...]
    step: int = 0

    def arrays(self) -> tuple[Array, Array]:
        """Return the parameter's array θ and its gradient, contiguous and in the dtype of θ."""
        parameter = self.parameter
        if parameter.master is None:
            parameter.data = _whole(parameter.data, parameter.data.dtype)
        assert parameter.grad is not None  # only parameters with a gradient are stepped
        theta = parameter.learnt
        return theta, _whole(parameter.grad, theta.dtype)

    def pieces(self) -> list[tuple[Array, Array, tuple[Array, ...], int]]:
        """Return views of (θ, gradient, states), and the step, of what is stepped by itself."""
        theta, gradient = self.arrays()
        ends = list(accumulate(self.parameter.packed)) if self.owner.apart else []
        places: list[Any] = [slice(*each) for each in pairwise([0, *ends])] or [...]
        return [
            (theta[at], gradient[at], tuple(state[at] for state in self.states), self.step)
            for at in places
        ]


def _warn_of_equal(parameters: Iterable[tuple[str, Parameter]]) -> None:
    """Warn if two matrices begin with the same numbers, because layers were made with one seed."""
    found: dict[bytes, str] = {}
    for name, parameter in parameters:
        if len(parameter.shape) > 1 and parameter.shape[0]:
            row = to_host(parameter.learnt[:1])
            if row.size > 1 and (row != row.flat[0]).any():
                other = found.setdefault(row.tobytes(), name)
                if other != name:
                    warnings.warn(
                        f"{other} and {name} begin with the same numbers, and layers that begin "
                        "alike may stay alike; unless they were loaded so, "
                        "module.initialise(seed) draws each parameter by its full name",
                        stacklevel=3,
                    )
                    return


class ModelOptimizer:
    """An optimizer of named parameters, with its states. A tied parameter counts once.

    `parameters` is a mapping or (name, parameter) pairs; without a config it is Adam.
    Warns if the first rows of two matrices are the same numbers, unless all of the row is one
    number: equal layers may learn the same.

    >>> weight = Parameter((2,), lambda g, shape: np.zeros(shape))
    >>> weight.grad = np.array([1.0, -1.0], np.float32)
    >>> optimizer = ModelOptimizer({"weight": weight})
    >>> optimizer.step(lr=0.5)
    >>> weight.data.round(3)
    array([-0.5,  0.5], dtype=float32)
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter] | Iterable[tuple[str, Parameter]],
        config: OptimizerConfig | None = None,
    ) -> None:
        self.config = config or OptimizerConfig()
        self.optimizer = OPTIMIZERS[self.config.name]
        self._slots: dict[str, _Slot] = {}
        seen: set[int] = set()
        for name, parameter in dict(parameters).items():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                owner = self.optimizer.of(name, parameter.shape)
                self._slots[name] = _Slot(parameter, owner, owner.initial(parameter.learnt))
        _warn_of_equal((name, slot.parameter) for name, slot in self._slots.items())

    def norm(self) -> float:
        """Return the global norm of all gradients, 0.0 if no parameter has one."""
        slots = self._slots.values()
        return global_norm(s.parameter.grad for s in slots if s.parameter.grad is not None)

    def not_finite(self) -> list[str]:
        """Return the names of the parameters whose gradient contains NaN or infinity."""
        return [
            name
            for name, slot in self._slots.items()
            if slot.parameter.grad is not None
            and not np.isfinite(to_host(slot.parameter.grad)).all()
        ]

    def step(self, lr: float, scale: float = 1.0) -> None:
        """Update every parameter that has a gradient, using scale · gradient.

        `scale` combines gradient clipping and the normalisation of the loss in one factor.
        Parameters are changed in place, so run every backward first. Raises `ValueError`, and
        changes nothing, if a gradient has not its parameter's shape, or the learning rate or scale
        is not finite.
        """
        if not (math.isfinite(lr) and math.isfinite(scale)):
            raise ValueError(f"lr and scale must be finite, got {lr} and {scale}")
        stepped = {n: slot for n, slot in self._slots.items() if slot.parameter.grad is not None}
        for name, slot in stepped.items():
            check_gradient(slot.parameter.grad, slot.parameter.shape, name)
        alike: dict[Any, list[_Slot]] = {}
        for slot in stepped.values():
            slot.step += 1
            alike.setdefault((slot.owner.name, slot.parameter.learnt.dtype), []).append(slot)
        for slots in alike.values():
            self._step(slots[0].owner, slots, float(lr), float(scale))
            for slot in slots:
                if slot.parameter.master is not None:
                    slot.parameter.narrow(slot.parameter.data.dtype)

    def _step(self, owner: Optimizer, slots: list[_Slot], lr: float, scale: float) -> None:
        """Update parameters of one dtype and optimizer, by the kernel or the reference function."""
        settings = self.config.settings()
        options = {name: settings[name] for name in owner.settings} | {"lr": lr, **owner.options}
        pieces = [piece for slot in slots for piece in slot.pieces()]
        thetas, gradients, states, steps = map(list, zip(*pieces, strict=True))
        call = Call(owner.step, (thetas, gradients, states), {"step": steps, **options})
        call.arguments["scale"] = scale  # only kernels take it: they scale while they read
        if not isinstance(dispatch.fused(call), Declined):
            return
        for theta, gradient, before, step in pieces:
            gradient = gradient if scale == 1.0 else gradient * scale
            new, after = owner.step(theta, gradient, before, step=step, **options)
            theta[...] = new
            for state, new_state in zip(before, after, strict=True):
                state[...] = new_state

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to None."""
        for slot in self._slots.values():
            slot.parameter.grad = None

    def state_dict(self) -> dict[str, Array]:
        """Return the optimizer's state as NumPy arrays by name.

        Each parameter has STATE.PARAMETER for every state, and step.PARAMETER. The numbers of
        steps are copies; the states are not, unless they are on a device: the next step may change
        them.
        """
        state: dict[str, Array] = {}
        for name, slot in self._slots.items():
            for kept, array in zip(slot.owner.states, slot.states, strict=True):
                state[f"{kept}.{name}"] = to_host(array)
            state[f"step.{name}"] = np.array(slot.step, np.int64)
        return state

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Restore a state of `state_dict`, which is copied.

        Raises `UserError` naming arrays that are missing, unknown, or of another dtype or shape.
        """
        own = {name: f"{x.dtype}{x.shape}" for name, x in self.state_dict().items()}
        given = {name: f"{x.dtype}{x.shape}" for name, x in state.items()}
        if errors := changes(own, given, "none"):
            listed = "\n  ".join(sorted(errors))
            raise UserError(
                "the optimizer's state is of another model or optimizer than "
                f"{self.config.name}:\n  {listed}"
            )
        for name, slot in self._slots.items():
            theta, kept = slot.parameter.learnt, slot.owner.states
            slot.states = tuple(like(np.array(state[f"{s}.{name}"]), theta) for s in kept)
            slot.step = int(state[f"step.{name}"])
