"""How exactly kernels multiply matrices when a model is trained on the CPU."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from pellucid.core import dispatch
from pellucid.core.errors import UserError, install
from pellucid.kernels.device import CPU, Precision

_rounded = ContextVar("pellucid_rounded_products", default=False)


def rounded() -> bool:
    """Return whether `linear` and `linear_cross_entropy` round what they multiply to bfloat16."""
    return _rounded.get()


def bfloat16_products() -> AbstractContextManager[None]:
    """Round what `linear` and `linear_cross_entropy` multiply to bfloat16 inside a block.

    It concerns their kernels for NumPy's float32. They keep 8 bits of every number that they
    multiply, and add in float32; weights, gradients and all other ops stay float32. A backward
    multiplies as its forward did. Raises `UserError` where the processor has no such instruction.
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
    return _inside()


def products_for(device: str, precision: Precision) -> AbstractContextManager[None]:
    """Return the block in which to train with this precision, on a device of `kernels.device`.

    It does nothing but for bfloat16 on the CPU. Raises as `bfloat16_products` does.
    """
    return bfloat16_products() if (device, precision) == (CPU, "bfloat16") else nullcontext()


@contextmanager
def _inside() -> Iterator[None]:
    token = _rounded.set(True)
    try:
        yield
    finally:
        _rounded.reset(token)
