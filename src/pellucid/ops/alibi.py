"""ALiBi: scores fall linearly with the distance between query and key; no position embeddings."""

import math
from typing import Annotated

import numpy as np


def alibi(distance: Annotated[np.ndarray, "… L S"], heads: int) -> Annotated[np.ndarray, "… H L S"]:
    """Return ALiBi's bias, which is added to the attention scores: a_h = −m_h |distance|.

    distance: (…, L, S), query position − key position; a: (…, H, L, S), float64, not learned.
    The slope of head h = 1 … H is m_h = 2^(−8 h / H) if H is a power of two. Otherwise, with P the
    largest power of two below H, the slopes are those for P heads, followed by every second slope
    for 2 P heads. Source: Press, Smith & Lewis 2022, 3; their code for other H.

    >>> alibi(np.array([[0, 2]]), 2)[:, 0, 1].tolist()
    [-0.125, -0.0078125]
    """
    slopes = np.array(_slopes(heads))
    added: np.ndarray = -slopes[:, None, None] * np.abs(distance)[..., None, :, :]
    return added


def _slopes(heads: int) -> list[float]:
    """Return the slope m_h of each head."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (heads - power) + 1, 2)]
