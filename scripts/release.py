"""Make a release: set its version, and build the files to publish. See CONTRIBUTING.md.

    python scripts/release.py version 0.2.0    write the version wherever it is stated
    python scripts/release.py build            build/release: wheels, sdist, SBOM, SHA256SUMS

`build` makes everything twice, from two copies of the commit, and compares the bytes. It refuses a
version that is not closed in the changelog, and a checkout with changes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import badges

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
VERSION = re.compile(r'(?<=^__version__ = ")[^"]*(?=")', re.MULTILINE)
SHOWN = {
    "CITATION.cff": re.compile(r"(?<=^version: ).*$", re.MULTILINE),
    "deploy/kubernetes.yaml": re.compile(r"(?<=image: pellucid:).*$", re.MULTILINE),
}
"""Files and patterns that show users the version of the newest release."""
UNRELEASED = "## Unreleased\n"
EXTRAS = ("", "kernels", "train", "cli", "demo", "eval", "lab", "serve")
"""Extras in the SBOM; "" is the basic installation."""


def version() -> str:
    """Return the version of this checkout."""
    found = VERSION.search((ROOT / "src/pellucid/__init__.py").read_text("utf-8"))
    assert found is not None
    return found[0]


def set_version(new: str, today: str) -> None:
    """Write a version to all files that state one.

    A release also closes the changelog. A development version is written to the package alone, and
    opens a new section of the changelog.
    """
    if re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", new) is None:
        sys.exit(f"expected a version such as 0.2.0 or 0.3.0.dev0, got {new!r}")
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text("utf-8")
    if "dev" in new:
        if UNRELEASED not in text:
            text = text.replace("\n## ", f"\n{UNRELEASED}\n## ", 1)
    elif UNRELEASED in text:
        text = text.replace(UNRELEASED, f"## {new} - {today}\n", 1)
        for name, pattern in SHOWN.items():
            _replace(ROOT / name, pattern, new)
    else:
        sys.exit(f"CHANGELOG.md has no line {UNRELEASED.strip()!r} to close as {new}")
    changelog.write_text(text, "utf-8")
    _replace(ROOT / "src/pellucid/__init__.py", VERSION, new)
    badges.main([])


def _replace(path: Path, pattern: re.Pattern[str], new: str) -> None:
    """Replace the version in a file. Exits if it is not stated exactly once."""
    text, count = pattern.subn(new, path.read_text("utf-8"))
    if count != 1:
        sys.exit(f"{path.relative_to(ROOT)} states the version {count} times, expected 1")
    path.write_text(text, "utf-8")


def refusal() -> str | None:
    """Return why this checkout cannot be released, or None."""
    own = version()
    if "dev" in own:
        return f"{own} is a development version: python scripts/release.py version X.Y.Z"
    if (
        re.search(rf"^## {re.escape(own)} - \d{{4}}-\d\d-\d\d$", _text("CHANGELOG.md"), re.M)
        is None
    ):
        return f"CHANGELOG.md has no section {own} with a date"
    if changed := _git("status", "--porcelain").decode():
        return f"the checkout has changes; commit them first:\n{changed}"
    return None


def _text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def built(copy: Path, libraries: Path) -> dict[str, bytes]:
    """Build the files of a release from the commit in another folder.

    Return them by name.
    """
    with tarfile.open(fileobj=BytesIO(_git("archive", "HEAD"))) as commit:
        commit.extractall(copy, filter="data")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(copy / "dist")]
    subprocess.run(
        [*command, "-t", "sdist", "-t", "wheel"], cwd=copy, check=True, stdout=subprocess.DEVNULL
    )
    if any(libraries.glob("*.so")):
        shutil.copytree(libraries, copy / "build" / "kernels")
        (wheel,) = (copy / "dist").glob("*.whl")
        add = [sys.executable, "scripts/build_kernels.py", "--wheel", str(wheel)]
        subprocess.run(add, cwd=copy, check=True)
    files = {path.name: path.read_bytes() for path in sorted((copy / "dist").iterdir())}
    files[f"pellucid-{version()}.cdx.json"] = sbom()
    sums = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
    return files | {"SHA256SUMS": "".join(sums).encode()}


def sbom() -> bytes:
    """Make the software bill of materials in CycloneDX 1.6, from the installed packages."""
    about = tomllib.loads(_text("pyproject.toml"))["project"]
    extras = {"": about["dependencies"]} | about["optional-dependencies"]
    wanted = {name: [Requirement(each) for each in extras[name]] for name in EXTRAS}
    edges = _edges([each for found in wanted.values() for each in found])
    own = f"pkg:pypi/pellucid@{version()}"
    direct = sorted({_purl(each.name) for each in wanted[""] if _applies(each, "")})
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own)}",
        "metadata": {
            "component": {
                "type": "library", "bom-ref": own, "purl": own, "name": "pellucid",
                "version": version(), "licenses": [{"license": {"id": about["license"]}}],
            },
            "properties": [{"name": "pellucid:extras", "value": " ".join(filter(None, EXTRAS))}],
        },
        "components": [_component(name) for name in sorted(edges)],
        "dependencies": [
            {"ref": own, "dependsOn": direct},
            *({"ref": _purl(name), "dependsOn": sorted(map(_purl, edges[name]))}
              for name in sorted(edges)),
        ],
    }  # fmt: skip
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _edges(wanted: list[Requirement]) -> dict[str, set[str]]:
    """Return all packages that requirements need, directly or not, and what each one needs."""
    found: dict[str, set[str]] = {}
    left = [each for each in wanted if _applies(each, "")]
    seen = set()
    while left:
        needed = left.pop()
        name = canonicalize_name(needed.name)
        for extra in ("", *needed.extras):
            if name != "pellucid" and (name, extra) not in seen:
                seen.add((name, extra))
                each = map(Requirement, importlib.metadata.requires(name) or ())
                more = [one for one in each if _applies(one, extra)]
                found.setdefault(name, set()).update(canonicalize_name(one.name) for one in more)
                left += more
    return found


def _applies(requirement: Requirement, extra: str) -> bool:
    """Return whether a requirement applies to this machine with an extra."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _purl(name: str) -> str:
    """Return the package URL of an installed package."""
    return f"pkg:pypi/{canonicalize_name(name)}@{importlib.metadata.version(name)}"


def _component(name: str) -> dict[str, Any]:
    """Describe an installed package for the SBOM."""
    about = importlib.metadata.metadata(name)
    stated = about["License-Expression"]
    trove = [each for each in about.get_all("Classifier", []) if each.startswith("License ::")]
    component: dict[str, Any] = {
        "type": "library", "bom-ref": _purl(name), "purl": _purl(name), "name": name,
        "version": about["Version"],
    }  # fmt: skip
    if stated:
        component["licenses"] = [{"expression": stated}]
    elif trove:
        names = (each.rpartition(" :: ")[2] for each in trove)
        component["licenses"] = [{"license": {"name": each}} for each in names]
    elif about["License"]:
        component["licenses"] = [{"license": {"name": about["License"].splitlines()[0]}}]
    return component


def build() -> int:
    """Write the files of the release, built twice and compared; return the exit code."""
    if (why := refusal()) is not None:
        sys.exit(f"no release: {why}")
    libraries = ROOT / "build" / "kernels"
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        files, again = (built(Path(folder), libraries) for folder in (first, second))
    other = sorted(name for name in files | again if files.get(name) != again.get(name))
    if other:
        sys.exit(f"two builds of one commit differ: {', '.join(other)}")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for name, data in files.items():
        (OUT / name).write_bytes(data)
        print(f"{len(data) / 1e3:>9,.0f} kB  {OUT.relative_to(ROOT) / name}")
    if not any(libraries.glob("*.so")):
        print("without kernels that are compiled ahead: build/kernels has none")
    print("two builds have the same bytes")
    return 0


def main(arguments: list[str]) -> int:
    """Set the version or build a release; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version").add_argument("new")
    commands.add_parser("build")
    options = parser.parse_args(arguments)
    if options.command == "build":
        return build()
    set_version(options.new, date.today().isoformat())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
