"""The optimizers Adam and AdamW."""

import math
from dataclasses import replace
from typing import NamedTuple

from pellucid.core.array import Array, namespace
from pellucid.optim.optimizer import Optimizer


class Moments(NamedTuple):
    """Adam's state of a parameter: running means of the gradient and of its square."""

    exp_avg: Array
    exp_avg_sq: Array


def adam(
    theta: Array,
    gradient: Array,
    moments: tuple[Array, ...],
    *,
    step: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> tuple[Array, Moments]:
    """Return the parameter θ and its moments after step t (counted from 1), as torch's Adam does.

        0.  Adam:  g ← g + λ θ          AdamW (`decoupled`):  θ ← θ − lr λ θ
        1.  m ← β₁ m + (1 − β₁) g
        2.  v ← β₂ v + (1 − β₂) g²
        3.  θ ← θ − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)

    θ, g, m and v have the same shape and the same floating dtype. Arguments are not written to.
    Source: Kingma & Ba 2015, algorithm 1; Loshchilov & Hutter 2019 for the decoupled decay.

    >>> import numpy as np
    >>> zero = Moments(np.zeros(1), np.zeros(1))
    >>> adam(np.ones(1), np.array([5.0]), zero, step=1, lr=0.1)[0].round(6)
    array([0.9])
    """
    beta1, beta2 = betas
    if weight_decay and decoupled:  # 0
        theta = theta * (1 - lr * weight_decay)
    elif weight_decay:
        gradient = gradient + weight_decay * theta
    m, v = moments
    exp_avg = m + (gradient - m) * (1 - beta1)  # 1
    exp_avg_sq = beta2 * v + (1 - beta2) * (gradient * gradient)  # 2
    root = namespace(theta).sqrt(exp_avg_sq) / math.sqrt(1 - beta2**step) + eps  # 3
    theta = theta - (lr / (1 - beta1**step)) * (exp_avg / root)
    return theta, Moments(exp_avg, exp_avg_sq)


ADAM = Optimizer(
    name="adam",
    about="Adam; weight decay is added to the gradient (Kingma & Ba 2015)",
    states=Moments._fields,
    step=adam,
    settings={"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
)
ADAMW = replace(
    ADAM,
    name="adamw",
    about="Adam; weight decay shrinks the weights directly (Loshchilov & Hutter 2019)",
    settings={**ADAM.settings, "weight_decay": 0.01},
    options={"decoupled": True},
)
