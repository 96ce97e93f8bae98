"""A learned scale of the attention scores, one number for each head, applied to the queries."""

from typing import Annotated, NamedTuple

from pellucid.core.array import Array, namespace


class Saved(NamedTuple):
    q: Array
    scale: Array


def head_scale(
    q: Annotated[Array, "… H D"], scale: Annotated[Array, "H"]
) -> tuple[Annotated[Array, "… H D"], Saved]:
    """Scale the queries of each head by a learned number: q'_h = s_h q_h.

    Then q'·k = s_h (q·k), so `attention` is called with scale 1. Article 003 asks which scale is
    best; this lets training answer: layers initialise s_h to 1/√D, and after training
    p = −log s_h / log D says which 1/D^p it has become. PyTorch has no such layer.
    Raises `ValueError` when q has another number of heads than `scale`.

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
    """Return the gradients of q and of scale; dy is the gradient of q', written dq' here.

    q'_td = s_h q_td for every query t and channel d of head h, so

        dq_td = dq'_td ∂q'_td/∂q_td = s_h dq'_td
        ds_h  = Σ_td dq'_td ∂q'_td/∂s_h = Σ_t dq'_t · q_t

    The scores A_tj = q'_t·k_j gave dq'_t = Σ_j dA_tj k_j, so ds_h equals Σ_tj dA_tj (q_t·k_j), but
    the keys are not needed. At s_h = 0 all scores of head h are 0: its q get a zero gradient, s_h
    in general does not.
    """
    q, scale = saved
    xp = namespace(dy, q)
    along = xp.sum(dy * q, axis=-1)
    return dy * scale[:, None], xp.sum(xp.reshape(along, (-1, scale.shape[0])), axis=0)
