"""Dropout's random bits on a GPU: torch's own generator there, seeded anew at every site.

Hashing every element, as on the CPU, would cost a dozen passes over memory here. So a mask comes
from torch's counter-based generator (Philox), whose seed is a hash of (seed, step, site) and of the
name of the first row. The same run draws the same bits again, also after a resume, and parts of a
batch draw different ones. They are not the bits of the CPU, and not those of the batch in another
number of parts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pellucid.core.rng import Rng, mix


def draws_on(device: torch.device, p: float, rng: Rng | None) -> bool:
    """Return whether a kernel computes dropout of `p` on this device: on a GPU, yes.

    On the CPU the reference op draws NumPy's bits. With nothing to drop a kernel does it anywhere.
    """
    return p == 0.0 or rng is None or (0.0 < p < 1.0 and device.type != "cpu")


def seed_of(rng: Rng) -> int:
    """Return a generator's seed for this site, step and part of the batch: below 2⁶³."""
    first = np.uint32(0) if rng.rows is None or not rng.rows.size else rng.rows.flat[0]
    part = mix(np.asarray(first, np.uint32) ^ np.uint32(rng.site_key()))
    return rng.site_key() << 31 | int(part) >> 1


def keep_mask(x: Tensor, p: float, rng: Rng) -> Tensor:
    """Return bool like x: True with probability 1 − p."""
    generator = torch.Generator(device=x.device)
    generator.manual_seed(seed_of(rng))
    mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    return mask.bernoulli_(1.0 - p, generator=generator)


def masked(x: Tensor, keep: Tensor | None, p: float) -> Tensor:
    """Return x ⊙ m / (1 − p) in one pass; no mask keeps everything."""
    if keep is None:
        return x
    y: Tensor = torch.ops.aten.native_dropout_backward(x, keep, 1.0 / (1.0 - p))
    return y


def mask_of(x: Tensor, p: float, rng: Rng | None) -> Tensor | None:
    """Return the mask for x, or None where nothing is dropped."""
    return None if p == 0.0 or rng is None else keep_mask(x, p, rng)
