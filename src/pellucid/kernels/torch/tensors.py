"""Helpers of the kernels for PyTorch: argument checks, sums in float32, transfers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_NARROW = (torch.bfloat16,)
_KNOWN = (torch.float32, torch.float64, *_NARROW)
NOT_TENSORS = "expects tensors of one floating-point dtype on one device, shapes that fit"
"""Why a kernel declines."""


def are_numbers(*tensors: Tensor | None) -> bool:
    """Return whether all tensors have one dtype and are on one device; None is skipped.

    The dtype must be float32, float64 or bfloat16.
    """
    given = [x for x in tensors if x is not None]
    first = given[0]
    return first.dtype in _KNOWN and all(
        isinstance(x, torch.Tensor) and x.dtype == first.dtype and x.device == first.device
        for x in given
    )


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to sum over rows: float32 for bfloat16, else the same."""
    return torch.float32 if dtype in _NARROW else dtype


def sum_of_rows(rows: Tensor) -> Tensor:
    """Return the sum (F,) of rows (T, F), in float32 if they are bfloat16."""
    return rows.sum(0, dtype=wide(rows.dtype))


def on_device(values: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Copy a small array of integers (N,) to the device; cached, as every layer needs the same."""
    return _uploaded(values.astype(np.int64, copy=False).tobytes(), dtype, str(device))


@lru_cache(maxsize=16)
def _uploaded(values: bytes, dtype: torch.dtype, device: str) -> Tensor:
    return torch.tensor(np.frombuffer(values, np.int64).copy(), dtype=dtype, device=device)
