"""ALiBi: scores fall with the distance between query and key, in place of positions."""

import math
from typing import Annotated

import numpy as np


def alibi(distance: Annotated[np.ndarray, "… L S"], heads: int) -> Annotated[np.ndarray, "… H L S"]:
    """Return what is added to the scores: a_h = −m_h |distance|. It is fixed, like `sinusoidal`.

    distance: (…, L, S), query position − key position; a: (…, H, L, S), float64. The slopes m_h
    are 2^(−8 h / H) for h = 1 … H where H is a power of two; otherwise those of the power P below
    H, then every second one of 2 P. Source: Press, Smith & Lewis 2022, 3; their code for other H.

    >>> alibi(np.array([[0, 2]]), 2)[:, 0, 1].tolist()
    [-0.125, -0.0078125]
    """
    slopes = np.array(_slopes(heads))
    added: np.ndarray = -slopes[:, None, None] * np.abs(distance)[..., None, :, :]
    return added


def _slopes(heads: int) -> list[float]:
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    return slopes + [2.0 ** (-4.0 * h / power) for h in range(1, 2 * (heads - power) + 1, 2)]
