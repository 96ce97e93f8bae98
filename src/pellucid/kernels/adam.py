"""The step of Adam and AdamW for all parameters of a model, in one pass over memory.

The reference op makes a dozen passes over arrays far larger than the cache, so memory bandwidth
limits its speed. Here every number is read once; parameters and moments are written once, in place.
The factor for clipping and loss normalisation is applied on the way, so that no scaled gradient is
stored. The order of operations is that of the reference op.
"""

import numpy as np

from pellucid.core.vjp import Call, Declined, Result, no_backward
from pellucid.kernels.backend import threads
from pellucid.kernels.backend.slices import address, floats, slices_of, whole


def kernel(call: Call) -> Result | Declined:
    """Update all parameters and moments in place, by the step of `optim.adam.adam`.

    In the call, θ, gradient, moments and step are lists over the parameters; gradients are
    multiplied by `call.scale` on the way, and their arrays are not changed.
    """
    tensors = list(zip(call.theta, call.gradient, *zip(*call.moments, strict=True), strict=True))
    if not whole(x for arrays in tensors for x in arrays):
        return Declined("expects float32 arrays, each in one piece that may be written")
    lr, (beta1, beta2), decay = call.lr, call.betas, call.weight_decay
    keep, added = (1 - lr * decay, 0.0) if call.decoupled else (1.0, decay)
    numbers = (call.scale, added, keep, 1 - beta1, beta2, 1 - beta2, call.eps)
    unbias = {t: (1 / (1 - beta2**t) ** 0.5, lr / (1 - beta1**t)) for t in set(call.step)}
    rates = np.array([unbias[t] for t in call.step], np.float32)
    addresses = np.array([[address(x) for x in arrays] for arrays in tensors], np.int64)
    slices = slices_of(call.theta)
    if len(slices):
        _step(len(slices), addresses, slices, rates, *map(np.float32, numbers))
    return None, no_backward


@threads.parallel("i8[:,::1],i8[:,::1],f4[:,::1],f4,f4,f4,f4,f4,f4,f4")
def _step(task, tasks, addresses, slices, rates, scale, decay, keep, rest1, beta2, rest2, eps):
    """Update one slice of one parameter."""
    which, first, size = slices[task, 0], slices[task, 1], slices[task, 2]
    theta = floats(addresses[which, 0], first, size)
    gradient = floats(addresses[which, 1], first, size)
    m = floats(addresses[which, 2], first, size)
    v = floats(addresses[which, 3], first, size)
    unbias2, rate = rates[which, 0], rates[which, 1]
    for i in range(theta.size):
        here = theta[i] * keep
        g = gradient[i] * scale + decay * here
        m_i = m[i] + (g - m[i]) * rest1
        v_i = beta2 * v[i] + rest2 * (g * g)
        m[i], v[i] = m_i, v_i
        theta[i] = here - rate * (m_i / (np.sqrt(v_i) * unbias2 + eps))
