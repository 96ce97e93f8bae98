"""Compile the kernels ahead of time, and link them: no Numba, no LLVM where they run.

    pip install ziglang==0.17.1
    python scripts/build_kernels.py [TARGET ...]
    python scripts/build_kernels.py --wheel WHEEL      writes a wheel for each system of Linux

Of each target (`TARGETS`) there is a process that compiles every kernel of the library from its
source, by Numba and LLVM as always, and writes object files; ziglang links them. The results are in
build/kernels/:

    x86_64-linux-LEVEL.so   shared libraries, one for each level of processors
                            (`kernels/backend/built.py`)
    aarch64-linux-neon.so   one for every AArch64, and aarch64-linux-neon.server, which runs its
                            kernels for `scripts/kernels_elsewhere.py aarch64-linux-neon`
    wasm32.wasm             a module that imports nothing, with its types in wasm32.json;
                            `scripts/kernels_elsewhere.py wasm32` runs the kernels' tests on it

Numba lowers for this machine, with addresses of 64 bits; LLVM optimises for the target. For another
architecture its types have that target's layout from the beginning, so that addresses inside of
arrays and records are as wide as there.

## How a kernel is called from outside of Python

The module exports a function `NAME.flat` for every kernel. It takes one
address, of slots of 8 bytes, and returns 0, or another number where memory ran out. The slots are
the kernel's arguments in order (`wasm32.json` has their types; records are taken apart):

    a number       one slot, little endian: int64, float64, or float32 and 32-bit integers in the
                   lower half; a bool is 0 or 1
    an array       the address of its first number, its shape, its strides in bytes: 1 + 2 · ndim
                   slots. It may lie anywhere in memory, aligned to 4 bytes, or to its numbers if
                   these are longer (an address for SIMD needs no alignment).

Outputs are arrays that the kernel writes. A kernel of several tasks takes (pool, task, ends ...)
first: pool = 0 (no threads), task = −1 (all of them), then the ends of its stages: the number of
tasks, where there is one stage. A call in Python is in the kernel's file: `kernels/linear.py` has
`_forward(own)(copying, copying + tasks, columns, rows, weight, b, packed, y)`, so the slots of
`pellucid.kernels.linear._forward.float32.flat` are 0, −1, copying, copying + tasks, columns, and
then those of five arrays. One task is always right (where tasks sum, `sums` has a row for each).

`malloc` (bytes) and `free` of the module find room for arrays; `memory` is exported. LANES is 4
there: vectors have 4 numbers, so `packed` panels are 8 numbers wide (`simd.WIDTH`).
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pellucid.kernels.backend.compile import Kernel

ROOT = Path(__file__).absolute().parents[1]
SRC, OUT = ROOT / "src", ROOT / "build" / "kernels"
PLATFORMS = {
    "x86_64-linux": "manylinux2014_x86_64",
    "aarch64-linux": "manylinux2014_aarch64",
}
"""Wheel platform tag of each system: glibc 2.17 (`TARGETS`) or later."""


class Target(NamedTuple):
    """A processor and system to compile for."""

    triple: str
    """Name of the target for LLVM."""
    zig: str
    """Name of the target for the linker."""
    cpu: str
    features: str


_V3 = "+avx,+avx2,+fma,+bmi,+bmi2,+f16c,+lzcnt,+movbe,+popcnt"
_V4 = f"{_V3},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl"
_LINUX, _GLIBC = "x86_64-unknown-linux-gnu", "x86_64-linux-gnu.2.17"
TARGETS = {
    "x86_64-linux-avx2": Target(_LINUX, _GLIBC, "x86-64-v3", f"{_V3},-avx512f"),
    "x86_64-linux-avxvnni": Target(_LINUX, _GLIBC, "x86-64-v3", f"{_V3},+avxvnni,-avx512f"),
    "x86_64-linux-avx512": Target(_LINUX, _GLIBC, "x86-64-v4", _V4),
    "x86_64-linux-vnni": Target(_LINUX, _GLIBC, "x86-64-v4", f"{_V4},+avx512vnni"),
    "x86_64-linux-bfloat16": Target(
        _LINUX, _GLIBC, "x86-64-v4", f"{_V4},+avx512vnni,+avx512bf16,+gfni"
    ),
    "x86_64-linux-amx": Target(
        _LINUX, _GLIBC, "x86-64-v4",
        f"{_V4},+avx512vnni,+avx512bf16,+gfni,+amx-tile,+amx-bf16",
    ),
    "aarch64-linux-neon": Target(
        "aarch64-unknown-linux-gnu", "aarch64-linux-gnu.2.17", "generic", "+neon,+fp-armv8"
    ),
    "wasm32": Target(
        "wasm32-unknown-unknown", "wasm32-wasi", "generic",
        "+simd128,+bulk-memory,+nontrapping-fptoint,+sign-ext",
    ),
}  # fmt: skip


def kernels() -> Iterator[Kernel]:
    """Yield all kernels: those of the modules, and those that are made for each variant."""
    import pellucid.kernels
    from pellucid.compiled.decode import kernels_of
    from pellucid.kernels import bias_act_dropout, linear, linear_cross_entropy
    from pellucid.kernels.backend import bfloat16, compile, matmul
    from pellucid.kernels.backend.machine_code import FEATURES
    from pellucid.ops.activations import ACTIVATIONS

    found: dict[str, Kernel] = dict(compile.named)
    for info in pkgutil.walk_packages(pellucid.kernels.__path__, "pellucid.kernels."):
        if ".torch" not in info.name:
            module = importlib.import_module(info.name)
            made = [one for one in vars(module).values() if isinstance(one, compile.Kernel)]
            found |= {one.name: one for one in made}
    all_products = [matmul.FLOAT32]
    if bfloat16.AVAILABLE:
        all_products.append(matmul.BFLOAT16)
    if {"+amx-tile", "+amx-bf16"} <= FEATURES:
        all_products.append(matmul.BFLOAT16_TILES)
    made = [
        make(products)
        for products in all_products
        for make in (
            linear._forward, linear._backward, linear_cross_entropy._chunk, matmul._packing,
            matmul._multiplying,
        )
    ]  # fmt: skip
    for name, record in ACTIVATIONS.items():
        if record.kernel is None:
            continue
        own = bias_act_dropout
        from_output = hasattr(own._module(name), "gradient_from_output")
        ungated = own._backward_from_output if from_output else own._backward
        backward = own._gated_backward if record.gates == 2 else ungated
        made += [own._forward(name), backward(name)]
        made += kernels_of(record.kernel)
    found |= compile.named | {one.name: one for one in made}
    for name, one in sorted(found.items()):
        rounds = "bfloat16" in name or "of_words" in name
        tiles = "amx" in name or "tiles" in name
        if not (rounds and not bfloat16.AVAILABLE) and not (tiles and len(all_products) < 3):
            yield one


def retarget(target: Target) -> Any:
    """Make Numba and LLVM compile for a target; return LLVM's target machine.

    Types get the memory layout of the target.
    """
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    from pellucid.kernels.backend import machine_code, thread_pool

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3,
        reloc="static" if "wasm" in target.triple else "pic",
    )  # fmt: skip
    machine_code._machine = lambda: machine  # type: ignore[assignment]
    if target.triple == machine_code.TARGET[1]:
        return machine
    machine_code.TARGET = (machine_code.TARGET[0], target.triple, *machine_code.TARGET[2:])
    linux = "linux" in target.triple
    thread_pool._X86, thread_pool._POSIX, thread_pool._FUTEX = False, linux, 98 if linux else None
    context = cpu_target.target_context
    codegen = context.codegen()
    codegen._tm, codegen._target_data = machine, machine.target_data
    codegen._data_layout = str(machine.target_data)
    # Nothing of it runs here; Numba finds a function by such an object, as in `numba_text`.
    codegen._add_module = lambda module: None
    context.get_executable = lambda library, described, environment: [].clear
    parse = llvm.parse_assembly

    def parsed(text: str, *more: Any) -> Any:
        text = re.sub(r'target triple = "[^"]*"', f'target triple = "{target.triple}"', text)
        layout = f'target datalayout = "{machine.target_data}"'
        return parse(re.sub(r'target datalayout = "[^"]*"', layout, text), *more)

    llvm.parse_assembly = parsed
    return machine


def flat(kernel: Kernel) -> str:
    """Return the LLVM text of the function `NAME.flat`, which calls a kernel with slots."""
    import numpy as np
    from llvmlite import ir

    from pellucid.kernels.backend.machine_code import _NUMBERS, TARGET

    module = ir.Module()
    module.triple = TARGET[1]
    long, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
    function = ir.Function(
        module, ir.FunctionType(ir.IntType(32), [pointer]), f"{kernel.name}.flat"
    )
    builder = ir.IRBuilder(function.append_basic_block())
    slots, passed = function.args[0], [builder.alloca(pointer), builder.alloca(pointer)]
    at = 0

    def take(kind: Any) -> Any:
        nonlocal at
        place = builder.gep(slots, [long(8 * at)])
        at += 1
        return builder.load(builder.bitcast(place, kind.as_pointer()), align=8)

    def address() -> Any:
        return builder.inttoptr(take(long), pointer)

    nothing = ir.Constant(pointer, None)
    for value in kernel.values:
        if not value.ndim:
            passed.append(address() if value.dtype == "address" else take(_NUMBERS[value.dtype]))
            continue
        data, axes = address(), [take(long) for _ in range(2 * value.ndim)]
        size = long(1)
        for length in axes[: value.ndim]:
            size = builder.mul(size, length)
        itemsize = np.dtype(value.dtype).itemsize
        passed += [nothing, nothing, size, long(itemsize), data, *axes]
    kind = ir.FunctionType(ir.IntType(32), [one.type for one in passed])
    builder.ret(builder.call(ir.Function(module, kind, kernel.name), passed))
    return str(module)


def write_objects(target: Target, folder: Path) -> None:
    """Write an object file for every kernel, and kernels.json, which describes them."""
    sys.path.insert(0, str(SRC))
    import llvmlite.binding as llvm

    from pellucid.kernels.backend import machine_code

    machine = retarget(target)
    known = {}
    own = {"malloc": "kernel_malloc", "free": "kernel_free"} if "wasm" in target.triple else {}

    def emit(name: str, *texts: str) -> None:
        module: Any = None
        for text in texts:
            for old, new in own.items():
                text = re.sub(rf"@{old}\b", f"@{new}", text)
            # a place for Python's objects, of which there are none
            text = re.sub(r"= common (?=.*\bglobal\b)", "= internal ", text)
            part = llvm.parse_assembly(text)
            module = part if module is None else module.link_in(part) or module
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
        (folder / f"{name}.o").write_bytes(machine.emit_object(module))

    emit("memory", machine_code._MEMORY)
    for kernel in kernels():
        emit(kernel.name, kernel.text(), flat(kernel))
        if "linux" in target.triple:  # for Python there
            emit(f"{kernel.name}.entry", machine_code.entry(kernel.name, kernel.values))
        known[kernel.name] = [[value.dtype, value.ndim] for value in kernel.values]
    (folder / "kernels.json").write_text(json.dumps(known, indent=0, sort_keys=True))


def link(name: str, target: Target, folder: Path) -> None:
    """Link the object files of a target into a library, program or module."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-O2", "-s", "-target"]
    kernels = [path for path in folder.glob("*.o") if not path.name.endswith(".entry.o")]
    known = list(json.loads((folder / "kernels.json").read_text()))

    def run(result: Path, *options: Any) -> None:
        command = [*zig, *options, "-o", result, *sorted(kernels)]
        subprocess.run(list(map(str, command)), check=True)
        print(f"{result.relative_to(ROOT)}: {result.stat().st_size / 1e3:.0f} kB", flush=True)

    if "wasm" in target.triple:
        exported = ["malloc", "free", *(f"{one}.flat" for one in known)]
        options = ["-mexec-model=reactor", *(f"-Wl,--export={one}" for one in exported)]
        run(OUT / f"{name}.wasm", target.zig, *options, ROOT / "scripts" / "kernel_memory.c")
        return
    entries = folder.glob("*.entry.o")
    run(OUT / f"{name}.so", target.zig, "-shared", *entries, "-lm")
    if name.startswith("aarch64"):  # here is no Python to test them with
        table = folder / "table.c"
        flat = [f'int kernel_{i}(void *) __asm__("{one}.flat");' for i, one in enumerate(known)]
        names = ", ".join(f"kernel_{i}" for i in range(len(known)))
        table.write_text("\n".join([*flat, f"int (*const kernels[])(void *) = {{{names}}};"]))
        server = ROOT / "scripts" / "kernel_server.c"
        run(OUT / f"{name}.server", "aarch64-linux-musl", "-static", table, server, "-lm")


def wheels(wheel: Path) -> None:
    """Write a wheel with kernels for each system, from the wheel without.

    It needs no Numba; a user's own function then runs as its reference.
    """
    with zipfile.ZipFile(wheel) as old:
        for_all = {info.filename: old.read(info) for info in old.infolist()}
    about = next(name for name in for_all if name.endswith(".dist-info/WHEEL"))
    described, record = (about.replace("/WHEEL", f"/{name}") for name in ("METADATA", "RECORD"))
    for system, platform in PLATFORMS.items():
        libraries = sorted(OUT.glob(f"{system}-*.so"))
        if not libraries:
            continue
        files = {name: data for name, data in for_all.items() if "/kernels/prepared/" not in name}
        files |= {f"pellucid/kernels/built/{path.name}": path.read_bytes() for path in libraries}
        files[about] = files[about].replace(b"py3-none-any", f"py3-none-{platform}".encode())
        files[about] = files[about].replace(b"Purelib: true", b"Purelib: false")
        files[described] = re.sub(
            rb"(?m)^Requires-Dist: numba(?!.*\bextra\b).*\n", b"", files[described]
        )
        lines = [
            f"{name},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},"
            f"{len(data)}"
            for name, data in files.items()
            if name != record
        ]
        files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
        made = wheel.with_name(wheel.name.replace("-any.whl", f"-{platform}.whl"))
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
            for name, data in files.items():
                info = zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0))
                info.external_attr = 0o644 << 16
                new.writestr(info, data, zipfile.ZIP_DEFLATED)
        print(f"{made.name}: {made.stat().st_size / 1e6:.1f} MB, {len(libraries)} libraries")


def build(name: str) -> None:
    """Compile and link the kernels for a target."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": target.features,
            "NUMBA_CACHE_DIR": folder,
        }  # fmt: skip
        again = [sys.executable, __file__, "--this-target", name, folder]
        subprocess.run(again, check=True, env=environment)
        link(name, target, Path(folder))
        (OUT / f"{name}.json").write_bytes((Path(folder) / "kernels.json").read_bytes())


def is_current(name: str) -> bool:
    """Return whether a target is built and newer than all code that it depends on."""
    code = [*(SRC / "pellucid").glob("kernels/**/*.py"), *(SRC / "pellucid").glob("compiled/*.py")]
    built = OUT / f"{name}.json"  # written last
    made = built.stat().st_mtime if built.exists() else 0.0
    return made > max(path.stat().st_mtime for path in [*code, Path(__file__)])


def main(names: list[str]) -> None:
    """Build all targets, or the named ones, unless they are current."""
    if names[:1] == ["--wheel"]:
        wheels(Path(names[1]))
        return
    if names[:1] == ["--this-target"]:
        write_objects(TARGETS[names[1]], Path(names[2]))
        return
    OUT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # a process each
        list(pool.map(build, [name for name in names or TARGETS if not is_current(name)]))


if __name__ == "__main__":
    main(sys.argv[1:])
