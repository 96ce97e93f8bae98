"""A learned scale of the scores, one number for each head, put into the queries."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    q: Array
    scale: Array


def head_scale(
    q: Annotated[Array, "… H D"], scale: Annotated[Array, "H"]
) -> tuple[Annotated[Array, "… H D"], Saved]:
    """Return q' with q'_h = s_h q_h, so that q'·k = s_h (q·k): attention then needs no scale.

    Raises `ValueError` when q has another number of heads. torch has no such layer. It is
    article 003's question put to the gradient: s_h begins at 1/√D, and −log s_h / log D is the p of
    1/D^p that training makes of it.

    >>> import numpy as np
    >>> head_scale(np.ones((2, 1)), np.array([0.5, 3.0]))[0]
    array([[0.5],
           [3. ]])
    """
    if q.ndim < 2 or q.shape[-2] != scale.shape[0]:
        raise ValueError(
            f"head_scale expects q of shape (…, {scale.shape[0]}, D), one scale for each head; "
            f"got {tuple(q.shape)}"
        )
    return q * scale[:, None], Saved(q, scale)


def head_scale_backward(
    dy: Annotated[Array, "… H D"], saved: Saved
) -> tuple[Annotated[Array, "… H D"], Annotated[Array, "H"]]:
    """Return the gradients of q and of scale, from dy, that of q' (written dq' here).

    q'_td = s_h q_td for every query t and channel d of head h, so

        dq_td = dq'_td ∂q'_td/∂q_td = s_h dq'_td
        ds_h  = Σ_td dq'_td ∂q'_td/∂s_h = Σ_t dq'_t · q_t

    Scores A_tj = q'_t·k_j gave dq'_t = Σ_j dA_tj k_j, so ds_h is Σ_tj dA_tj (q_t·k_j) without a
    second look at the keys. At s_h = 0 all scores are 0: q gets nothing, s_h still learns.
    """
    q, scale = saved
    xp = namespace(dy, q)
    along = xp.sum(dy * q, axis=-1)
    return dy * scale[:, None], xp.sum(xp.reshape(along, (-1, scale.shape[0])), axis=0)
