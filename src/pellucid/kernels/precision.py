"""Select the precision of matrix products in training on the CPU: float32 or bfloat16."""

from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from pellucid.core import dispatch
from pellucid.core.errors import UserError, install
from pellucid.core.vjp import assigned
from pellucid.kernels.device import CPU, Precision

_rounded = ContextVar("pellucid_rounded_products", default=False)


def rounded() -> bool:
    """Return whether kernels of `linear` and `linear_cross_entropy` now multiply in bfloat16."""
    return _rounded.get()


def bfloat16_products() -> AbstractContextManager[None]:
    """Return a block in which `linear` and `linear_cross_entropy` multiply in bfloat16.

    Their kernels for NumPy arrays then round the factors of products to bfloat16 (8 bits) and add
    in float32; weights, gradients and all other ops stay float32. A backward multiplies as its
    forward did. Raises `UserError` if the processor has no instructions for bfloat16, or if there
    are no kernels or they are switched off.
    """
    if not dispatch.AVAILABLE:
        raise UserError(
            f"bfloat16 on the CPU needs Numba, which is not installed: {install('kernels')}"
        )
    from pellucid.kernels.backend.amx import available
    from pellucid.kernels.backend.bfloat16 import AVAILABLE

    if not AVAILABLE:
        raise UserError(
            "bfloat16 on the CPU needs a processor with AVX512-BF16 (AMD since Zen 4, Intel Xeon "
            "since Sapphire Rapids), which this one lacks: leave out `precision` bfloat16"
        )
    if not dispatch.enabled():
        raise UserError(
            "bfloat16 on the CPU is computed by kernels, and PELLUCID_KERNELS=off switches them "
            "off: leave out one of the two"
        )
    available()  # asked for before a thread begins that would make Linux refuse it
    return assigned(_rounded, True)


def products_for(device: str, precision: Precision) -> AbstractContextManager[None]:
    """Return the block in which to train with a precision on a device of `kernels.device`.

    It is `bfloat16_products` for bfloat16 on `cpu`, and raises its errors; any other does nothing.
    """
    return bfloat16_products() if (device, precision) == (CPU, "bfloat16") else nullcontext()
