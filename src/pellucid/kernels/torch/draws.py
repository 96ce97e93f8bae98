"""Random bits for dropout on a GPU, by PyTorch's generator, seeded at every dropout.

To hash every element, as on the CPU, would take a dozen passes over memory here. So a mask is drawn
by PyTorch's counter-based generator (Philox), seeded with a hash of (seed, step, site) and of the
key of the first row. A repeated or resumed run draws the same bits again, and parts of a batch draw
different ones. The bits differ from those on the CPU, and depend on the number of parts.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pellucid.core.rng import Rng, mix


def draws_on(device: torch.device, p: float, rng: Rng | None) -> bool:
    """Return whether kernels compute dropout with probability p on this device.

    They do on a GPU, if 0 < p < 1; on the CPU the reference op draws the same bits as for NumPy.
    If nothing is dropped, they do on any device.
    """
    return p == 0.0 or rng is None or (0.0 < p < 1.0 and device.type != "cpu")


def seed_of(rng: Rng) -> int:
    """Return a seed below 2⁶³ for PyTorch's generator: a hash of `rng` and of its first row.

    So each run, step, dropout and part of a batch draws its own bits.
    """
    first = np.uint32(0) if rng.rows is None or not rng.rows.size else rng.rows.flat[0]
    part = mix(np.asarray(first, np.uint32) ^ np.uint32(rng.site_key()))
    return rng.site_key() << 31 | int(part) >> 1


def keep_mask(x: Tensor, p: float, rng: Rng) -> Tensor:
    """Draw a bool mask with the shape of x, True with probability 1 − p."""
    generator = torch.Generator(device=x.device)
    generator.manual_seed(seed_of(rng))
    mask = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    return mask.bernoulli_(1.0 - p, generator=generator)


def masked(x: Tensor, keep: Tensor | None, p: float) -> Tensor:
    """Return x ⊙ keep / (1 − p), computed in one pass; x itself if `keep` is None."""
    if keep is None:
        return x
    y: Tensor = torch.ops.aten.native_dropout_backward(x, keep, 1.0 / (1.0 - p))
    return y


def mask_of(x: Tensor, p: float, rng: Rng | None) -> Tensor | None:
    """Draw the dropout mask for x; None if nothing is dropped."""
    return None if p == 0.0 or rng is None else keep_mask(x, p, rng)
