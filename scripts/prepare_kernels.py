"""Write the kernels that come with the package in LLVM's language; see `kernels/backend/prepared`.

    python scripts/prepare_kernels.py

It trains and generates with small models in a process for each kind of processor, with an empty
cache, and makes the text of every kernel whose code has changed. The kinds have names, so that the
text does not depend on this processor, which may be any with AVX2 (`wide_vectors`): one with VNNI
and AVX512-BF16, one with AMX besides, one with AVX-512 alone, and one with AVX2.

`make wheel` runs it. The files in the repository may be older than the code: what does not fit is
compiled from its source, so an edit of a kernel needs no new file beside it. All of it takes four
minutes, and a few seconds when nothing has changed.
"""

from __future__ import annotations

import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processors import AMX, AVX2, AVX512, BFLOAT16

SRC = Path(__file__).absolute().parents[1] / "src"
FOLDER = SRC / "pellucid" / "kernels" / "prepared"
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"activation_function": "gelu"},
    {
        "activation_function": "swiglu", "norm_type": "rms_norm", "positions": "rotary",
        "qk_norm": True,
    },
)  # fmt: skip


def use_kernels() -> Iterator[bytes]:
    """Run training and generation of small models, which calls all kernels.

    Yield results.
    """
    import numpy as np

    from pellucid import nn
    from pellucid.compiled.engine import Engine
    from pellucid.core.batch import Batch, Packed
    from pellucid.generation import SearchConfig
    from pellucid.kernels.backend import bfloat16
    from pellucid.kernels.precision import bfloat16_products
    from pellucid.models import Seq2Seq, Seq2SeqConfig
    from pellucid.optim.config import OptimizerConfig
    from pellucid.optim.model import ModelOptimizer
    from pellucid.optim.step import train_step
    from pellucid.training.config import TrainingConfig

    x = np.ones((5, 8), np.float32)
    yield nn.MultiheadAttention(8, 2)(x, x, x)[1].tobytes()
    sources = Packed.of([[5, 3, 11] * 4, [7, 5]])
    batch = Batch(sources, Packed.of([[1, *[7, 13] * 5, 2], [1, 3, 2]]))
    for settings in MODELS:
        model = Seq2Seq(Seq2SeqConfig(17, 19, d_model=32, num_attention_heads=2, **settings))
        for name in ("muon", "adam"):
            training = TrainingConfig(steps=1, optimizer=OptimizerConfig(name))
            optimizer = ModelOptimizer(model.named_parameters(), training.optimizer)
            train_step(model, optimizer, batch, training, step=1, lr=1e-3)
        if bfloat16.AVAILABLE:
            with bfloat16_products():
                train_step(model, optimizer, batch, training, step=2, lr=1e-3)
        yield from (parameter.data.tobytes() for _, parameter in model.named_parameters())
        for arithmetic in ("float32", "int8"):
            engine = Engine(model.eval(), arithmetic)
            for beam in (1, 2):
                yield repr(engine.search(sources, SearchConfig(beam=beam, max_length=5))).encode()


def write(entries: dict[str, tuple[str, str]]) -> None:
    """Write the file of prepared kernels for this system and vector width.

    entries: (digest of the code, LLVM text) by the kernel's name.
    """
    import llvmlite

    from pellucid.kernels.backend import prepared

    content = {"llvmlite": llvmlite.__version__, "kernels": entries}
    prepared.path().parent.mkdir(exist_ok=True)
    data = json.dumps(content, indent=0).encode()
    prepared.path().write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def prepare(before: Path) -> None:
    """Prepare the kernels that `use_kernels` needs.

    Keep those in `before` that are current.
    """
    sys.path.insert(0, str(SRC))  # this checkout's, whichever is installed

    import wide_vectors  # noqa: F401 - what this processor lacks is written out
    from pellucid.kernels.backend import prepared
    from pellucid.kernels.backend.cache import code_digest
    from pellucid.kernels.backend.compile import Kernel, modules_of

    folder, prepared.FOLDER = prepared.FOLDER, before
    known = prepared.entries()
    prepared.FOLDER = folder
    prepared.entries.cache_clear()
    entries = prepared.entries()  # those of the other kinds with vectors of this width
    make, made = Kernel.text, []

    def text(name: str, digest: str) -> str | None:
        key = prepared.key(name)
        found = next((kept[key] for kept in (entries, known) if key in kept), ("", ""))
        if found[0] != digest:
            return None
        entries[key] = found
        return found[1]

    def make_text(self: Kernel) -> str:
        made.append(self.name)
        key, digest = prepared.key(self.name), code_digest(modules_of(self.function))
        entries[key] = digest, make(self)
        return entries[key][1]

    prepared.text = text
    Kernel.text = make_text  # type: ignore[method-assign]
    for _ in use_kernels():
        pass
    write(entries)
    size = prepared.path().stat().st_size
    print(f"{prepared.path().name}: {len(made)} of {len(entries)} kernels new, {size / 1e3:.0f} kB")


def main() -> None:
    """Prepare the kernels for each kind of processor."""
    if sys.argv[1:2] == ["--this-kind"]:
        prepare(Path(sys.argv[2]))
        return
    if sys.platform != "linux" or platform.machine() != "x86_64":
        print("Kernels are prepared on x86-64 Linux: the files stay as they are.")
        return
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch) / "before"
        if FOLDER.exists():
            shutil.move(FOLDER, before)
        # An earlier kind's text serves a later one of the same width: the commonest is the first.
        for kind, environment in enumerate((BFLOAT16, AMX, AVX512, AVX2)):
            again = [sys.executable, str(Path(__file__).absolute()), "--this-kind", str(before)]
            caches = {"NUMBA_CACHE_DIR": str(Path(scratch) / str(kind))}
            subprocess.run(again, env=os.environ | environment | caches, check=True, cwd=SRC)


if __name__ == "__main__":
    main()
