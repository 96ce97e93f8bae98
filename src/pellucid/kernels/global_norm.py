"""The norm of all gradients in one pass over memory, in float64."""

import math
from typing import Any

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, no_backward
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.slices import address, floats, slices_of, whole


def kernel(call: Call) -> Result | Declined:
    """Compute √Σ g² over all gradients, in slices of a fixed size that are added in order."""
    arrays = call.gradients
    if not whole(arrays):
        return Declined("expects float32 arrays, each in one piece that may be written")
    slices = slices_of(arrays)
    sums = np.empty(len(slices))
    if len(slices):
        _squares(len(slices), np.array([address(x) for x in arrays], np.int64), slices, sums)
    return math.sqrt(sum(sums.tolist())), no_backward


@threads.parallel("i8[::1],i8[:,::1],f8[::1]")
def _squares(task: Any, tasks: Any, addresses: Any, slices: Any, sums: Any) -> None:
    """Sum the squares of one slice."""
    here = floats(addresses[slices[task, 0]], slices[task, 1], slices[task, 2])
    total = 0.0
    for i in range(here.size):
        wide = np.float64(here[i])
        total += wide * wide
    sums[task] = total
