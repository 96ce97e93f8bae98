"""T5's relative positions: near distances have a number each, far ones share one."""

import math
from typing import Annotated

import numpy as np


def relative_buckets(
    distance: Annotated[np.ndarray, "…"],
    buckets: int = 32,
    longest: int = 128,
    both_ways: bool = True,
) -> Annotated[np.ndarray, "…"]:
    """Return the row of a table of scores for every distance, query position − key position.

    With B buckets for a direction (half of them each if `both_ways`), distances below B/2 have a
    bucket each; beyond, the logarithm of the distance is cut into equal parts up to `longest`, and
    what is further shares the last. Keys after the query have the second half; if not `both_ways`,
    they have bucket 0. Any shape, integers. It is fixed; the table's gradient is `embedding`'s.
    Source: Raffel et al. 2020 (T5), 2.1, and its code, which takes the logarithm in float32.

    >>> relative_buckets(np.array([0, 1, 7, 8, 127, 500, -1]))
    array([ 0,  1,  7,  8, 15, 15, 17])
    """
    offset = np.zeros_like(distance)
    if both_ways:
        buckets //= 2
        offset = np.where(distance < 0, buckets, 0)
        distance = np.abs(distance)
    distance = np.maximum(distance, 0)
    exact = buckets // 2
    share = np.log(np.maximum(distance, exact).astype(np.float32) / np.float32(exact))
    far = exact + (share / np.float32(math.log(longest / exact)) * (buckets - exact)).astype(int)
    found: np.ndarray = offset + np.where(distance < exact, distance, np.minimum(far, buckets - 1))
    return found
