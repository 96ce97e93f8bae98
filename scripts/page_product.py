"""Compile the kernels' matrix product to WebAssembly for the page.

    python scripts/page_product.py [FILE]

The default FILE is viewer/src/run/product.wasm. The source is the LLVM text of the product that
training runs (`kernels/backend/tile.py`), as the package has it prepared for vectors of 8 floats;
LLVM compiles it for wasm32 with SIMD. The linker is Zig's: `pip install ziglang==0.17.1`.
"""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import llvmlite.binding as llvm

ROOT = Path(__file__).absolute().parents[1]
PREPARED = ROOT / "src/pellucid/kernels/prepared/x86_64-unknown-linux-gnu-8.json.xz"
OUTPUT = ROOT / "viewer/src/run/product.wasm"
NAME = "pellucid.kernels.backend.tile.product"
TRIPLE, FEATURES = "wasm32-unknown-unknown", "+simd128,+bulk-memory"
STACK = 1 << 16


def product(text: str) -> bytes:
    """Compile the product's LLVM text, which is for x86-64, to a wasm32 object file."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        opt=3, features=FEATURES, reloc="static"
    )
    text = re.sub(r'target triple = "[^"]*"', f'target triple = "{TRIPLE}"', text)
    text = re.sub(
        r'target datalayout = "[^"]*"', f'target datalayout = "{machine.target_data}"', text
    )
    text = re.sub(r'"target-(cpu|features)"="[^"]*"', "", text)
    text = text.replace("= common local_unnamed_addr global", "= internal global")
    module = llvm.parse_assembly(text)
    module.verify()
    return bytes(machine.emit_object(module))


def main() -> None:
    """Write the file."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    kernels = json.loads(lzma.decompress(PREPARED.read_bytes()))["kernels"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "product.o"
        source.write_bytes(product(kernels[NAME][1]))
        link = [sys.executable, "-m", "ziglang", "wasm-ld", "--no-entry", "--import-memory"]
        link += ["--strip-all", "--stack-first", "-z", f"stack-size={STACK}"]
        link += [f"--export={NAME}", "-o", str(output), str(source)]
        subprocess.run(link, check=True)
    print(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
