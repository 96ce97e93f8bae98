"""Adafactor: Adam's division by √v, with v of a matrix kept as one row and one column."""

from __future__ import annotations

import math

from pellucid.core.array import Array, namespace
from pellucid.training.optimizers.optimizer import Optimizer, Shape

DECAY = -0.8  # of 1 − β₂, a power of the step
LEAST_SCALE = 1e-3  # ε₂: how small a parameter is at least taken to be
CLIP = 1.0  # d: the largest root mean square of an update


def adafactor(
    theta: Array,
    gradient: Array,
    states: tuple[Array, ...],
    *,
    step: int,
    lr: float,
    weight_decay: float = 0.0,
) -> tuple[Array, tuple[Array, ...]]:
    """Return θ and its states after step t (counted from 1), with torch's formulas.

        1.  α = max(ε₂, RMS(θ)) · min(lr, 1/√t),  then  θ ← θ − lr λ θ
        2.  β = 1 − t^(−0.8)
        3.  of a matrix (states R, C):  R ← β R + (1 − β) mean of g² over a row
                                        C ← β C + (1 − β) mean of g² over a column
                                        V = R C / mean(R)
            of a vector (state V):      V ← β V + (1 − β) g²
        4.  U = g / √V
        5.  θ ← θ − α U / max(1, RMS(U))

    So a matrix of n × m numbers is remembered by n + m. `lr` is the largest *relative* step: the
    paper's is 0.01. As in torch V is at least ε₁², and mean(R) at least ε₁, the dtype's epsilon.
    Source: Shazeer & Stern 2018, algorithms 4 and 5; torch.optim.Adafactor.

    >>> import numpy as np
    >>> adafactor(np.ones(2), np.array([5.0, -0.1]), (np.zeros(2),), step=1, lr=0.01)[0]
    array([0.99, 1.01])
    """
    xp = namespace(theta)
    least = float(xp.finfo(theta.dtype).eps)
    rate = max(LEAST_SCALE, _rms(theta)) * min(lr, step**-0.5)  # 1
    theta = theta * (1 - lr * weight_decay)
    fresh, square = step**DECAY, gradient * gradient  # 2: 1 − β
    after: tuple[Array, ...]
    if len(states) == 2:  # 3
        row, column = states
        row = row + (xp.mean(square, axis=-1, keepdims=True) - row) * fresh
        column = column + (xp.mean(square, axis=-2, keepdims=True) - column) * fresh
        mean = xp.mean(row, axis=-2, keepdims=True)
        v, after = row * column / xp.where(mean < least, least, mean), (row, column)
    else:
        v = states[0] + (square - states[0]) * fresh
        after = (v,)
    u = gradient / xp.sqrt(xp.where(v < least**2, least**2, v))  # 4
    return theta - rate / max(1.0, _rms(u) / CLIP) * u, after  # 5


def _rms(x: Array) -> float:
    """Return √mean(x²)."""
    xp = namespace(x)
    return math.sqrt(float(xp.mean(x * x)))


def _row_and_column(shape: Shape) -> tuple[Shape, ...]:
    *more, rows, columns = shape
    return (*more, rows, 1), (*more, 1, columns)


ADAFACTOR = Optimizer(
    name="adafactor",
    about="divided by a root mean square kept as a row and a column; steps relative to the "
    "parameter's size (Shazeer & Stern 2018)",
    states=("row_var", "col_var"),
    step=adafactor,
    settings={"weight_decay": 0.0},
    shapes=_row_and_column,
    takes=lambda name, shape: len(shape) > 1,
    others=Optimizer(
        name="adafactor",
        about="of vectors, the mean squares themselves",
        states=("variance",),
        step=adafactor,
        settings={"weight_decay": 0.0},
    ),
)
