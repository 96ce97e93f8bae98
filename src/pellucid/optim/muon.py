"""Muon: steps along the nearest orthogonal matrix of the momentum, for the matrices of the layers.

Adam scales every number of a matrix by itself. Muon takes the matrix as a map: of the momentum's
singular value decomposition U S Vᵀ it keeps U Vᵀ, so that all directions move equally far.
"""

from pellucid.core.array import Array, namespace
from pellucid.optim.adam import ADAMW
from pellucid.optim.optimizer import Optimizer

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
LEAST_NORM = 1e-7


def is_hidden_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a parameter is a matrix of a layer: no table, no output layer, no vector.

    >>> is_hidden_matrix("encoder.layers.0.linear1.weight", (17, 8))
    True
    >>> is_hidden_matrix("output.weight", (17, 8))
    False
    """
    return len(shape) == 2 and "layers." in name and name.endswith("weight")


def orthogonalised(g: Array) -> Array:
    """Return about U Vᵀ of g = U S Vᵀ: singular values become 0.7 to 1.2, directions stay.

        1.  X = g / ‖g‖, transposed if it has more rows than columns
        2.  five times:  A = X Xᵀ,  X ← a X + (b A + c A²) X

    Each time every singular value s becomes a s + b s³ + c s⁵, which is steep at 0, so that small
    ones grow too. Source: Jordan et al. 2024.

    >>> import numpy as np
    >>> x = orthogonalised(np.array([[3.0, 0.0], [0.0, 0.5]]))
    >>> bool(np.allclose(x, np.eye(2), atol=0.3))
    True
    """
    tall = g.shape[0] > g.shape[1]
    x = g.T if tall else g
    x = x / max(float(namespace(x).sum(x * x)) ** 0.5, LEAST_NORM)  # 1
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):  # 2
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x


def muon(
    theta: Array,
    gradient: Array,
    states: tuple[Array, ...],
    *,
    step: int,
    lr: float,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
) -> tuple[Array, tuple[Array]]:
    """Return the matrix θ (R, C) and its momentum after a step.

        1.  m ← μ m + (1 − μ) g
        2.  O = orthogonalised((1 − μ) g + μ m)                        Nesterov's momentum
        3.  θ ← θ − lr (0.2 √max(R, C) O + λ θ)

    The factor 0.2 √max(R, C) gives the step the size of Adam's, so that one learning rate and one
    decay serve both. `step` is not used: the length of the momentum does not count. Arguments are
    not written to. Source: Jordan et al. 2024 (Muon); Liu et al. 2025 (Moonlight), 2.2, for 3;
    torch.optim.Muon(adjust_lr_fn="match_rms_adamw").

    >>> import numpy as np
    >>> zero = np.zeros((1, 4))
    >>> muon(zero, np.array([[3.0, 0, 0, 0]]), (zero,), step=1, lr=0.1)[0].round(2)
    array([[-0.03,  0.  ,  0.  ,  0.  ]])
    """
    m = states[0] + (gradient - states[0]) * (1 - momentum)  # 1
    update = orthogonalised(gradient + (m - gradient) * momentum)  # 2
    rate = lr * 0.2 * max(theta.shape) ** 0.5
    return theta * (1 - lr * weight_decay) - rate * update, (m,)  # 3


MUON = Optimizer(
    name="muon",
    about="the layers' matrices along their orthogonalised momentum, all else by AdamW "
    "(Jordan et al. 2024; Liu et al. 2025)",
    states=("momentum_buffer",),
    step=muon,
    settings={"momentum": 0.95, "weight_decay": 0.1},
    takes=is_hidden_matrix,
    apart=True,
    others=ADAMW,
)
