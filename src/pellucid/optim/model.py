"""An optimizer over the parameters of a model, and the global norm that gradients are clipped to.

`ModelOptimizer.step` is the one place that steps parameters: it runs the optimizer's fused kernel
where there is one, or else its page.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pellucid.core import dispatch
from pellucid.core.array import Array, like, namespace, to_host
from pellucid.core.errors import UserError
from pellucid.core.settings import changes
from pellucid.core.vjp import Call, Declined, check_gradient
from pellucid.nn.module import Parameter
from pellucid.optim import OPTIMIZERS
from pellucid.optim.config import OptimizerConfig


def global_norm(gradients: Iterable[Array]) -> float:
    """Return √Σ g² over all elements of all arrays, summed in float64 in one fixed order.

    float64 also keeps a finite float32 gradient from overflowing when it is squared.

    >>> global_norm([np.array([3.0]), np.array([[4.0]])])
    5.0
    """
    arrays = [_whole(g, g.dtype) for g in gradients]
    fused = dispatch.fused(Call(cast(Any, global_norm), (arrays,), {}))
    if not isinstance(fused, Declined):
        return float(fused[0])
    total = 0.0
    for g in map(to_host, arrays):
        # einsum runs on one thread without BLAS, so the order does not depend on thread counts.
        flat = np.ravel(g)
        total += float(np.einsum("i,i->", flat, flat, dtype=np.float64))
    return math.sqrt(total)


def _whole(x: Array, dtype: Any) -> Array:
    """Return x contiguous and writeable; it is copied only if it is not."""
    if not isinstance(x, np.ndarray):
        return namespace(x).astype(x, dtype, copy=False)
    if x.dtype == dtype and x.flags.carray:
        return x
    return np.require(x, dtype, ["C", "W"])


def clip_factor(norm: float, limit: float) -> float:
    """Return what a gradient of this norm is multiplied by to be no longer than `limit`.

    torch's rule: limit / (norm + 1e-6), at most 1; NaN stays NaN.

    >>> clip_factor(0.5, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.25)
    """
    return min(limit / (norm + 1e-6), 1.0)  # in this order, min keeps NaN


@dataclass
class _Slot:
    """A parameter and what is remembered of it."""

    parameter: Parameter
    states: tuple[Array, ...]
    step: int = 0

    def arrays(self) -> tuple[Array, Array]:
        """Return θ and the gradient, both contiguous and of θ's dtype."""
        parameter = self.parameter
        if parameter.master is None:
            parameter.data = _whole(parameter.data, parameter.data.dtype)
        assert parameter.grad is not None  # only parameters with a gradient are stepped
        theta = parameter.learnt
        return theta, _whole(parameter.grad, theta.dtype)


def _warn_of_equal(parameters: Iterable[tuple[str, Parameter]]) -> None:
    """Warn of matrices that begin with the same numbers, as layers made with one seed do."""
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
    """An optimizer over named parameters; a tied parameter is stepped once, by its first name.

    Warns of two matrices that begin with the same numbers.

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
                self._slots[name] = _Slot(parameter, self.optimizer.initial(parameter.learnt))
        _warn_of_equal((name, slot.parameter) for name, slot in self._slots.items())

    def norm(self) -> float:
        """Return the global norm of the gradients that there are."""
        slots = self._slots.values()
        return global_norm(s.parameter.grad for s in slots if s.parameter.grad is not None)

    def not_finite(self) -> list[str]:
        """Return the names of the parameters whose gradient has a NaN or an infinity."""
        return [
            name
            for name, slot in self._slots.items()
            if slot.parameter.grad is not None
            and not np.isfinite(to_host(slot.parameter.grad)).all()
        ]

    def step(self, lr: float, scale: float = 1.0) -> None:
        """Step every parameter that has a gradient along scale · gradient.

        `scale` is where clipping and the loss's normalisation come together: one factor.
        Parameters are written in place: run every backward that reads them before.
        Raises `ValueError`, with nothing stepped, on a gradient of another shape than its
        parameter's, and on a learning rate or scale that is not finite.
        """
        if not (math.isfinite(lr) and math.isfinite(scale)):
            raise ValueError(f"lr and scale must be finite, got {lr} and {scale}")
        stepped = {n: slot for n, slot in self._slots.items() if slot.parameter.grad is not None}
        for name, slot in stepped.items():
            check_gradient(slot.parameter.grad, slot.parameter.shape, name)
        alike: dict[Any, list[_Slot]] = {}
        for slot in stepped.values():
            slot.step += 1
            alike.setdefault(slot.parameter.learnt.dtype, []).append(slot)
        for slots in alike.values():
            self._step(slots, float(lr), float(scale))
            for slot in slots:
                if slot.parameter.master is not None:
                    slot.parameter.narrow(slot.parameter.data.dtype)

    def _step(self, slots: list[_Slot], lr: float, scale: float) -> None:
        # NumPy's own float64 scalars would turn float32 arrays into float64; Python's do not.
        options = {**self.config.settings(), "lr": lr, **self.optimizer.options}
        thetas, gradients = map(list, zip(*(slot.arrays() for slot in slots), strict=True))
        states, steps = [slot.states for slot in slots], [slot.step for slot in slots]
        call = Call(self.optimizer.step, (thetas, gradients, states), {"step": steps, **options})
        call.arguments["scale"] = scale  # a kernel's own: it makes no scaled gradient
        if not isinstance(dispatch.fused(call), Declined):
            return
        for slot, theta, gradient in zip(slots, thetas, gradients, strict=True):
            gradient = gradient if scale == 1.0 else gradient * scale
            new, after = self.optimizer.step(
                theta, gradient, slot.states, step=slot.step, **options
            )
            theta[...] = new
            for state, new_state in zip(slot.states, after, strict=True):
                state[...] = new_state

    def zero_grad(self) -> None:
        """Forget the gradient of every parameter that is stepped."""
        for slot in self._slots.values():
            slot.parameter.grad = None

    def state_dict(self) -> dict[str, Array]:
        """Return the state as named arrays: STATE.NAME for each of its states, and step.NAME.

        They are NumPy's, wherever the parameters are.
        """
        state: dict[str, Array] = {}
        for name, slot in self._slots.items():
            for kept, array in zip(self.optimizer.states, slot.states, strict=True):
                state[f"{kept}.{name}"] = to_host(array)
            state[f"step.{name}"] = np.array(slot.step, np.int64)
        return state

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take over a state; raises `UserError` naming every array that does not fit."""
        own = {name: f"{x.dtype}{x.shape}" for name, x in self.state_dict().items()}
        given = {name: f"{x.dtype}{x.shape}" for name, x in state.items()}
        if errors := changes(own, given, "none"):
            listed = "\n  ".join(sorted(errors))
            raise UserError(
                "the optimizer's state is of another model or optimizer than "
                f"{self.config.name}:\n  {listed}"
            )
        for name, slot in self._slots.items():
            theta, kept = slot.parameter.learnt, self.optimizer.states
            slot.states = tuple(like(np.array(state[f"{s}.{name}"]), theta) for s in kept)
            slot.step = int(state[f"step.{name}"])
