"""Adam and AdamW, and the global norm that gradients are cut to.

`adam` is the plain page: one parameter, one step, a pure function. `Adam` holds the state of a
whole model; its `step` is the one place that calls it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pellucid import kernels
from pellucid.core.errors import UsageError, UserError
from pellucid.core.vjp import check_gradient
from pellucid.nn.module import Parameter

Array = np.ndarray


class Moments(NamedTuple):
    """What Adam remembers of one parameter: running means of its gradient and of the square."""

    exp_avg: Array
    exp_avg_sq: Array


def adam(
    theta: Array,
    gradient: Array,
    moments: Moments,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Array, Moments]:
    """Return θ and its moments after step t (counted from 1), with torch's formulas.

        0.  Adam:  g ← g + λ θ          AdamW (`decoupled`):  θ ← θ − lr λ θ
        1.  m ← β₁ m + (1 − β₁) g
        2.  v ← β₂ v + (1 − β₂) g²
        3.  θ ← θ − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)

    Any shape and dtype, the same of all four. Nothing is written into an argument.
    Source: Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019 for the decoupled decay.

    >>> zero = Moments(np.zeros(1), np.zeros(1))
    >>> adam(np.ones(1), np.array([5.0]), zero, step=1, lr=0.1)[0].round(6)
    array([0.9])
    """
    beta1, beta2 = betas
    if weight_decay and decoupled:  # 0
        theta = theta * (1 - lr * weight_decay)
    elif weight_decay:
        gradient = gradient + weight_decay * theta
    exp_avg = moments.exp_avg + (gradient - moments.exp_avg) * (1 - beta1)  # 1
    exp_avg_sq = beta2 * moments.exp_avg_sq + (1 - beta2) * (gradient * gradient)  # 2
    root = np.sqrt(exp_avg_sq) / math.sqrt(1 - beta2**step) + eps  # 3
    theta = theta - (lr / (1 - beta1**step)) * (exp_avg / root)
    return theta, Moments(exp_avg, exp_avg_sq)


def global_norm(gradients: Iterable[Array]) -> float:
    """Return √Σ g² over all elements of all arrays, summed in float64 in one fixed order.

    float64 also keeps a finite float32 gradient from overflowing when it is squared.

    >>> global_norm([np.array([3.0]), np.array([[4.0]])])
    5.0
    """
    total, fused = 0.0, []
    for g in gradients:
        if kernels.fused("adam", g):
            fused.append(g)
            continue
        # einsum runs on one thread without BLAS, so the order does not depend on thread counts.
        flat = np.ravel(g)
        total += float(np.einsum("i,i->", flat, flat, dtype=np.float64))
    if fused and (kernel := kernels.fused("adam", fused[0])):
        total += kernel.sum_of_squares(fused)
    return math.sqrt(total)


def clip_factor(norm: float, limit: float) -> float:
    """Return what a gradient of this norm is multiplied by to be no longer than `limit`.

    torch's rule: limit / (norm + 1e-6), at most 1; NaN stays NaN.

    >>> clip_factor(0.5, 1.0), round(clip_factor(4.0, 1.0), 6)
    (1.0, 0.25)
    """
    return min(limit / (norm + 1e-6), 1.0)  # in this order, min keeps NaN


class DivergedError(UserError):
    """Training left the numbers: a loss or a gradient is not finite, or the loss exploded."""

    def __init__(self, what: str, step: int, lr: float) -> None:
        self.step, self.lr = step, lr
        super().__init__(
            f"training diverged at step {step} (learning rate {lr:.3g}): {what}. "
            "Checkpoints already written stay. Try a lower learning rate, a longer warm-up or a "
            "lower clipping limit"
        )


@dataclass(frozen=True)
class OptimizerConfig:
    """How parameters are stepped; torch's names and defaults."""

    name: Literal["adam", "adamw"] = "adam"
    """adam (weight decay is added to the gradient) or adamw (it shrinks the weights directly)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """How slowly the running means of the gradient and of its square forget."""
    eps: float = 1e-8
    """Added to the root of the mean square."""
    weight_decay: float | None = None
    """λ; unset means 0 for adam and 0.01 for adamw."""
    clip: float = 1.0
    """Longest global gradient norm; inf for no limit."""

    def __post_init__(self) -> None:
        """Raise `UsageError` for a value out of range."""
        if self.name not in ("adam", "adamw"):
            raise UsageError(f"optimizer name must be adam or adamw, got {self.name!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas must be two numbers in [0, 1), got {self.betas}")
        if not self.eps > 0:
            raise UsageError(f"eps must be above 0, got {self.eps}")
        if self.weight_decay is not None and not self.weight_decay >= 0:
            raise UsageError(f"weight_decay must be at least 0, got {self.weight_decay}")
        if not self.clip > 0:
            raise UsageError(f"clip must be above 0 (inf for no limit), got {self.clip}")

    @property
    def decay(self) -> float:
        """The weight decay used."""
        if self.weight_decay is not None:
            return self.weight_decay
        return 0.01 if self.name == "adamw" else 0.0


@dataclass
class _Slot:
    parameter: Parameter
    moments: Moments
    step: int = 0


class Adam:
    """Adam or AdamW over named parameters; a tied parameter is stepped once, under its first name.

    >>> weight = Parameter((2,), lambda g, shape: np.zeros(shape))
    >>> weight.grad = np.array([1.0, -1.0], np.float32)
    >>> optimizer = Adam({"weight": weight})
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
        self._slots: dict[str, _Slot] = {}
        seen: set[int] = set()
        for name, parameter in dict(parameters).items():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                zeros = Moments(np.zeros_like(parameter.data), np.zeros_like(parameter.data))
                self._slots[name] = _Slot(parameter, zeros)

    def norm(self) -> float:
        """Return the global norm of the gradients that there are."""
        slots = self._slots.values()
        return global_norm(s.parameter.grad for s in slots if s.parameter.grad is not None)

    def not_finite(self) -> list[str]:
        """Return the names of the parameters whose gradient has a NaN or an infinity."""
        return [
            name
            for name, slot in self._slots.items()
            if slot.parameter.grad is not None and not np.isfinite(slot.parameter.grad).all()
        ]

    def step(self, lr: float, scale: float = 1.0) -> None:
        """Step every parameter that has a gradient along scale · gradient.

        `scale` is where clipping and the loss's normalisation come together: one factor.
        Parameters are written in place, so a way back that reads them must have been run before.
        Raises `ValueError`, with nothing stepped, on a gradient of another shape than its
        parameter's.
        """
        for name, slot in self._slots.items():
            if slot.parameter.grad is not None:
                check_gradient(slot.parameter.grad, slot.parameter.shape, name)
        # NumPy's own float64 scalars would turn float32 arrays into float64; Python's do not.
        lr, scale = float(lr), float(scale)
        options: dict[str, Any] = {
            "lr": lr,
            "betas": self.config.betas,
            "eps": self.config.eps,
            "weight_decay": self.config.decay,
            "decoupled": self.config.name == "adamw",
        }
        fused: list[tuple[Array, ...]] = []
        steps: list[int] = []
        for slot in self._slots.values():
            parameter = slot.parameter
            if parameter.grad is None:
                continue
            slot.step += 1
            gradient = np.asarray(parameter.grad, parameter.data.dtype)
            arrays = (parameter.data, gradient, *slot.moments)
            if kernels.fused("adam", *arrays):
                fused.append(arrays)
                steps.append(slot.step)
                continue
            gradient = gradient if scale == 1.0 else gradient * scale
            theta, moments = adam(parameter.data, gradient, slot.moments, step=slot.step, **options)
            parameter.data = np.require(parameter.data, requirements="W")
            parameter.data[...] = theta
            for kept, new in zip(slot.moments, moments, strict=True):
                kept[...] = new
        if fused and (kernel := kernels.fused("adam", *fused[0])):
            kernel.adam_step(fused, steps, scale=scale, **options)

    def zero_grad(self) -> None:
        """Forget the gradient of every parameter that is stepped."""
        for slot in self._slots.values():
            slot.parameter.grad = None

    def state_dict(self) -> dict[str, Array]:
        """Return the state as named arrays: exp_avg.NAME, exp_avg_sq.NAME and step.NAME."""
        state: dict[str, Array] = {}
        for name, slot in self._slots.items():
            state[f"exp_avg.{name}"] = slot.moments.exp_avg
            state[f"exp_avg_sq.{name}"] = slot.moments.exp_avg_sq
            state[f"step.{name}"] = np.array(slot.step, np.int64)
        return state

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Take over a state; raises `UserError` naming every array that does not fit."""
        own = self.state_dict()
        faults = [f"{name}: missing" for name in own.keys() - state.keys()]
        faults += [f"{name}: unexpected" for name in state.keys() - own.keys()]
        faults += [
            f"{name}: expected {own[name].dtype}{own[name].shape}, got {a.dtype}{a.shape}"
            for name, a in state.items()
            if name in own and (a.shape != own[name].shape or a.dtype != own[name].dtype)
        ]
        if faults:
            listed = "\n  ".join(sorted(faults))
            raise UserError(f"the optimiser's state is of another model:\n  {listed}")
        for name, slot in self._slots.items():
            slot.moments = Moments(
                np.array(state[f"exp_avg.{name}"]), np.array(state[f"exp_avg_sq.{name}"])
            )
            slot.step = int(state[f"step.{name}"])
