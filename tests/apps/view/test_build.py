"""The page that users get is what the sources in viewer/ build; its own tests pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VIEWER = ROOT / "viewer"
PAGES = ROOT / "src" / "pellucid" / "apps" / "view"
ASSETS = ROOT / "docs" / "assets"

needs_node = pytest.mark.oracle("node")


def run(*command: str, **variables: str) -> None:
    done = subprocess.run(
        command,
        cwd=VIEWER,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_node
def test_the_committed_page_and_figures_are_what_the_sources_build(tmp_path: Path) -> None:
    run("node", "build.mjs", PELLUCID_PAGES=str(tmp_path), PELLUCID_FIGURES=str(tmp_path))
    written = (PAGES / "page.html", PAGES / "learn.html")
    for path in (*written, ASSETS / "figures.js", ASSETS / "figures.css"):
        same = (tmp_path / path.name).read_bytes() == path.read_bytes()
        assert same, f"run `npm run build` in viewer/ and commit {path.relative_to(ROOT)}"


@needs_node
def test_the_types_hold() -> None:
    run("node", "node_modules/typescript/bin/tsc", "--noEmit")


@needs_node
def test_its_own_tests_pass() -> None:
    run("npm", "test")


def test_the_compiled_product_is_that_of_the_prepared_kernels(tmp_path: Path) -> None:
    linker = ROOT / "build" / "ziglang"
    if not (linker / "made").exists():
        pytest.skip("needs Zig's linker: make kernels")
    written, script = tmp_path / "product.wasm", ROOT / "scripts" / "page_product.py"
    run(sys.executable, str(script), str(written), PYTHONPATH=f"{ROOT / 'src'}:{linker}")
    same = written.read_bytes() == (VIEWER / "src" / "run" / "product.wasm").read_bytes()
    assert same, "run scripts/page_product.py, then `npm run build` in viewer/, and commit both"


def test_the_lock_file_names_no_address() -> None:
    lock = (VIEWER / "package-lock.json").read_text(encoding="utf-8")
    assert "://" not in lock
    assert "resolved" not in lock
    packages = json.loads(lock)["packages"]
    assert all("integrity" in package for name, package in packages.items() if name)
