"""T5's relative positions: each near distance has its own bias, far distances share one."""

import math
from typing import Annotated

import numpy as np


def relative_buckets(
    distance: Annotated[np.ndarray, "…"],
    buckets: int = 32,
    longest: int = 128,
    both_ways: bool = True,
) -> Annotated[np.ndarray, "…"]:
    """Return the bucket of each distance (query position − key position), an index of a bias table.

    Of the B buckets for one direction, distances below ⌊B/2⌋ have one each. Larger distances up to
    `longest` share the rest in logarithmic steps, and distances beyond `longest` the last one.
    If `both_ways`, each direction has B = ⌊buckets/2⌋, and keys after the query use the second
    half. Otherwise B = buckets, and keys after the query have bucket 0. Any shape, integers. There
    is no backward: the table's gradient comes from `embedding`.
    Raises `ValueError` unless ⌊B/2⌋ is at least 1 and below `longest`.
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
    if not 0 < exact < longest:
        raise ValueError(
            f"half the buckets of a direction, rounded down, must lie between 1 and longest − 1; "
            f"got {exact} with longest {longest}"
        )
    share = np.log(np.maximum(distance, exact).astype(np.float32) / np.float32(exact))
    far = exact + (share / np.float32(math.log(longest / exact)) * (buckets - exact)).astype(int)
    found: np.ndarray = offset + np.where(distance < exact, distance, np.minimum(far, buckets - 1))
    return found
