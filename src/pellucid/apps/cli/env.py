"""`pellucid env`: what a result and its speed depend on, for a bug report."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from pellucid.apps.cli.console import Output
from pellucid.core.machine import environment, processor, processors

OPTIONAL = ("torch", "onnxruntime", "ctranslate2", "matplotlib", "sacrebleu", "rapidfuzz")


def env() -> int:
    """List the versions, the processor, the kernels and the threads, to paste into a bug report.

    prepared kernels: those that come with the package for this system; Numba compiles the others,
    once.
    """
    from pellucid.kernels.backend import prepared
    from pellucid.kernels.backend.threads import available

    rows = {
        **environment(),
        "processor": f"{processor()}, {processors()} for this process",
        "threads": str(available()),
        "prepared kernels": f"{len(prepared.entries())} ({prepared.path().name})",
    }
    for package in OPTIONAL:
        try:
            rows[package] = version(package)
        except PackageNotFoundError:
            rows[package] = "-"
    for name, value in rows.items():
        Output().print(f"{name}: {value}", markup=False, soft_wrap=True)
    return 0
