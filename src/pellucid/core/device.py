"""Where a model computes: this processor with NumPy, or any device of PyTorch's; and how exactly.

`cpu`        NumPy and Pellucid's own kernels
`cuda`       PyTorch on a GPU; `cuda:1` is the second one
`torch:cpu`  PyTorch on this processor; `torch:DEVICE` is any device that PyTorch names
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from pellucid.core.array import Array
from pellucid.core.errors import UsageError, UserError, optional

Precision = Literal["float32", "tf32", "bfloat16"]

CPU = "cpu"
_TORCH = "torch:"


def import_torch(purpose: str, error: type[UserError] = UserError) -> Any:
    """Return PyTorch, or raise `error` saying what needs it and how to install it."""
    return optional(
        "torch",
        f"{purpose} needs PyTorch. Without a GPU install its CPU build, which is far smaller: "
        "choose Compute Platform: CPU at pytorch.org/get-started, and run the command shown there "
        "in this environment. For a GPU",
        error,
        extra="scale",
    )


def check_device(name: str, precision: Precision = "float32") -> None:
    """Raise `UsageError` or `UserError` unless there is such a device, that computes so exactly."""
    if precision not in get_args(Precision):
        raise UsageError(f"precision must be one of {', '.join(get_args(Precision))}")
    device = _torch_name(name)
    if device is None:
        if precision != "float32":
            raise UsageError(
                f"--precision {precision} is for PyTorch's devices (--device cuda); on the CPU "
                "Pellucid computes in float32: leave it out"
            )
        return
    torch = import_torch(f"--device {name}", UsageError)
    try:
        found = torch.device(device)
    except RuntimeError:
        raise _unknown(name) from None
    if found.type == "cuda":
        _check_cuda(torch, name, found.index or 0)
        return
    try:
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = str(error).strip().partition("\n")[0]
        raise UserError(f"--device {name}: PyTorch cannot use it: {line}") from None


def place(model: Any, name: str, precision: Precision = "float32") -> None:
    """Move a model to a device, to compute there as exactly as asked for.

    float32: float32 in every product (PyTorch's TF32 is switched off in this process). tf32:
    products round what they read to 10 bits, on GPUs that have it. bfloat16: everything is computed
    in bfloat16 but sums; what is learnt stays float32. Raises as `check_device` does.
    """
    check_device(name, precision)
    model.to(_prototype(name))
    if _torch_name(name) is None:
        return
    import torch

    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "bfloat16":
        model.narrow(torch.bfloat16)


def described(name: str, precision: Precision = "float32") -> dict[str, str]:
    """Return what a run's record says of its device; nothing for the CPU with NumPy.

    >>> described("cpu")
    {}
    """
    device = _torch_name(name)
    if device is None:
        return {}
    import torch

    of_gpu = f" ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else ""
    return {"device": f"{name}{of_gpu}", "torch": torch.__version__, "precision": precision}


def _torch_name(name: str) -> str | None:
    """Return PyTorch's name of a device, or None for NumPy's."""
    if name == CPU:
        return None
    device = name.removeprefix(_TORCH)
    if device == name and name.partition(":")[0] != "cuda":
        raise _unknown(name)
    return device


def _prototype(name: str) -> Array:
    """Return an array of the device."""
    device = _torch_name(name)
    if device is None:
        return np.empty(0, np.float32)
    import torch

    return torch.empty(0, device=device)


def _check_cuda(torch: Any, name: str, index: int) -> None:
    if torch.version.cuda is None and torch.version.hip is None:
        raise UserError(
            f"--device {name}: this PyTorch ({torch.__version__}) was built without CUDA; install "
            "a build for your GPU (pytorch.org/get-started), or leave out --device"
        )
    count = torch.cuda.device_count()
    if not torch.cuda.is_available() or count == 0:
        raise UserError(
            f"--device {name}: PyTorch sees no GPU; check that nvidia-smi lists it and that "
            "CUDA_VISIBLE_DEVICES does not hide it, or leave out --device"
        )
    if index >= count:
        raise UserError(f"--device {name}: PyTorch sees {count}, cuda:0 to cuda:{count - 1}")


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"--device {name}: expected cpu, cuda, cuda:NUMBER or torch:DEVICE, where DEVICE is "
        "PyTorch's name of one"
    )
