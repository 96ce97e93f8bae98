"""Select the device of a model (the CPU with NumPy, or a device of PyTorch) and its precision.

`cpu`        NumPy and Pellucid's own kernels
`cuda`       PyTorch on a GPU; `cuda:1` is the second one
`torch:cpu`  PyTorch on this processor; `torch:DEVICE` is any device that PyTorch names
"""

from typing import Any, Literal, get_args

import numpy as np

from pellucid.core.errors import UsageError, UserError, optional

Precision = Literal["float32", "tf32", "bfloat16"]

CPU = "cpu"


def import_torch(purpose: str, error: type[UserError] = UserError) -> Any:
    """Import PyTorch; if it is not installed, raise `error` that says how to install it.

    `purpose` says in the message what needs it.
    """
    return optional(
        "torch",
        f"{purpose} needs PyTorch. Without a GPU install its CPU build, which is far smaller: "
        "choose Compute Platform: CPU at pytorch.org/get-started, and run the command shown there "
        "in this environment. For a GPU",
        error,
        extra="scale",
    )


def check_device(name: str, precision: Precision = "float32") -> None:
    """Raise `UsageError` or `UserError` if the device cannot be used, or the precision is wrong.

    Unknown precisions, and tf32 on `cpu`, are wrong. Whether this processor can multiply in
    bfloat16 is not checked here but by `kernels.precision`.
    """
    if precision not in get_args(Precision):
        raise UsageError(f"precision must be one of {', '.join(get_args(Precision))}")
    device = _torch_name(name)
    if device is None:
        if precision == "tf32":
            raise UsageError(
                "`precision` tf32 is for PyTorch's devices (`device` cuda); on the CPU Pellucid "
                "multiplies in float32 or bfloat16"
            )
        return
    torch = import_torch(f"`device` {name}", UsageError)
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        line = str(error).strip().partition("\n")[0]
        raise UserError(
            f"`device` {name}: PyTorch cannot use it: {line}; for a GPU install the build for it "
            "(pytorch.org/get-started), or leave out `device`"
        ) from None


def place(model: Any, name: str, precision: Precision = "float32") -> None:
    """Move a model to a device and set the precision of its computations.

    float32: all products are in float32 (TF32 is switched off in this process). tf32: products
    round their inputs to 10 bits, on GPUs that support it. bfloat16: computes in bfloat16 except
    sums; the learned parameters stay float32. On the NumPy device the precision is only checked:
    training selects it (`kernels.precision`). Raises the errors of `check_device`.
    """
    check_device(name, precision)
    if (device := _torch_name(name)) is None:
        model.to(np.empty(0, np.float32))
        return
    import torch

    model.to(torch.empty(0, device=device))
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "bfloat16":
        model.narrow(torch.bfloat16)


def described(name: str, precision: Precision = "float32") -> dict[str, str]:
    """Describe device and precision for the record of a run; empty for float32 with NumPy.

    >>> described("cpu")
    {}
    """
    device = _torch_name(name)
    if device is None:
        return {} if precision == "float32" else {"precision": precision}
    import torch

    of_gpu = f" ({torch.cuda.get_device_name(device)})" if device.startswith("cuda") else ""
    return {"device": f"{name}{of_gpu}", "torch": torch.__version__, "precision": precision}


def _torch_name(name: str) -> str | None:
    """Return PyTorch's name of a device, or None for the NumPy device."""
    if name == CPU:
        return None
    device = name.removeprefix("torch:")
    if device == name and name.partition(":")[0] != "cuda":
        raise UsageError(
            f"`device` {name}: expected cpu, cuda, cuda:NUMBER or torch:DEVICE, where DEVICE is "
            "PyTorch's name of one"
        )
    return device
