"""`pellucid env`: list versions and hardware for a bug report."""

from pellucid.core.dispatch import AVAILABLE
from pellucid.core.errors import install
from pellucid.kernels.backend.machine import environment, processor, processors, versions


def env() -> int:
    """List the versions, the processor, the kernels and the threads, to paste into a bug report.

    prepared kernels: those that come with the package for this system; Numba compiles the others,
    once.
    """
    rows = {
        **environment(),
        "processor": f"{processor()}, {processors()} for this process",
        **(_kernels() if AVAILABLE else {"numba": f"not installed: {install('kernels')}"}),
        **versions("torch", "onnxruntime", "ctranslate2", "matplotlib", "sacrebleu", "rapidfuzz"),
    }
    print(*(f"{name}: {value}" for name, value in rows.items()), sep="\n")
    return 0


def _kernels() -> dict[str, str]:
    """Return the threads and the kernels of this machine."""
    from pellucid.kernels.backend import built, prepared
    from pellucid.kernels.backend.llvm import VERSION
    from pellucid.kernels.backend.threads import available

    return {
        "threads": str(available()),
        "built kernels": str(built.level()),
        "prepared kernels": f"{len(prepared.entries())} ({prepared.path().name})"
        if VERSION
        else "0",
    }
