"""Check deploy/: the image's steps run here, without a container.

    python scripts/check_deploy.py MODEL

The build context is copied as .dockerignore leaves it, the build stage's RUN is run in it, and what
it installed is started with the image's own ENTRYPOINT, environment and health check, on a free
port and with MODEL in place of CMD. It must answer, be healthy, and stop with 0 on SIGTERM. Where a
Docker daemon runs, `docker build` does the first half better.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


class Step(NamedTuple):
    """One instruction of a Dockerfile."""

    name: str
    rest: str


def stages(text: str) -> list[list[Step]]:
    """Parse a Dockerfile into the instructions of each stage."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    found: list[list[Step]] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            found.append([])
        if name:
            found[-1].append(Step(name, " ".join(rest.split())))
    return found


def value(stage: list[Step], name: str) -> str:
    """Return the argument of the last instruction with this name in a stage, or ""."""
    return next((step.rest for step in reversed(stage) if step.name == name), "")


def ignored(path: str, patterns: list[str]) -> bool:
    """Return whether .dockerignore excludes a path; the last matching pattern decides."""
    out = False
    for pattern in patterns:
        kept = pattern.startswith("!")
        bare = pattern.removeprefix("!").removeprefix("**/")
        places = [path, *map(str, Path(path).parents)]
        if pattern.startswith("**/"):
            places = [Path(place).name for place in places]
        if any(fnmatch.fnmatch(place, bare) for place in places if place != "."):
            out = not kept
    return out


def context() -> list[str]:
    """Return the files of the build context."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    files = [path for path in checkout() if (ROOT / path).is_file()]
    return [path for path in files if not ignored(path, patterns)]


def checkout() -> list[str]:
    """Return the files of the checkout.

    Without git, all except environments and caches.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # an archive, or somebody else's folder
        made = re.compile(r"(^|/)(\.[^/]+|build|runs|node_modules|__pycache__)/")
        paths = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*"))
        return [path for path in paths if not made.search(path)]
    return listed.stdout.splitlines()


def faults(text: str) -> list[str]:
    """Check a Dockerfile against the important rules of hadolint.

    Return the violations.
    """
    found = []
    built = stages(text)
    last = built[-1]
    for stage in built:
        image = stage[0].rest.split(" AS ")[0]
        if ":" not in image or image.endswith(":latest"):
            found.append(f"FROM {image}: no fixed version")
        for step in stage:
            if step.name == "ADD":
                found.append("ADD: use COPY")
            if step.name == "COPY" and step.rest.split()[0] == ".":
                found.append("COPY .: name what is copied")
            if (
                step.name == "RUN"
                and "pip install" in step.rest
                and "--no-cache-dir" not in step.rest
            ):
                found.append("pip install without --no-cache-dir")
            if step.name in ("ENTRYPOINT", "CMD") and not step.rest.startswith("["):
                found.append(f"{step.name} in shell form: signals would not arrive")
    if not value(last, "USER").split(":")[0].isdigit() or value(last, "USER").startswith("0"):
        found.append("USER must be a number, and not root")
    if not value(last, "HEALTHCHECK"):
        found.append("no HEALTHCHECK")
    return found


def build(folder: Path) -> Path:
    """Run the build stage inside a folder; return the folder that it installed into."""
    work, installed = folder / "build", folder / "opt" / "pellucid"
    stage = stages(DOCKERFILE.read_text(encoding="utf-8"))[0]
    there = context()
    for step in stage:
        if step.name == "COPY":
            *sources, target = step.rest.split()
            for source in sources:
                files = [path for path in there if path == source or path.startswith(f"{source}/")]
                assert files, f"COPY {source}: not in the build context"
                for path in files:
                    # A file lands in the target, a folder's contents below it.
                    inside = (
                        Path(path).name if path == source else str(Path(path).relative_to(source))
                    )
                    copied = work / target / inside
                    copied.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / path, copied)
        if step.name == "RUN":
            command = step.rest.replace("/opt/pellucid", str(installed))
            paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
            subprocess.run(["sh", "-ec", command], cwd=work, check=True, env={"PATH": paths})
    return installed


def run(installed: Path, model: Path, folder: Path) -> None:
    """Start the image's command, check its health, and stop it."""
    stage = stages(DOCKERFILE.read_text(encoding="utf-8"))[-1]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [part.replace("8000", port) for part in json.loads(value(stage, "ENTRYPOINT"))]
    health = json.loads(value(stage, "HEALTHCHECK").partition(" CMD ")[2].replace("8000", port))
    environment = {"PATH": f"{installed / 'bin'}:{os.environ['PATH']}"}
    for setting in value(stage, "ENV").split():
        name, _, given = setting.partition("=")
        environment.setdefault(name, given.replace("/tmp", str(folder)))
    paths = {"cwd": folder, "env": environment}
    process = subprocess.Popen([*command, f"model={model.resolve()}"], **paths)  # type: ignore[call-overload]
    try:
        end = time.monotonic() + 120
        while subprocess.run(health, capture_output=True, **paths).returncode:  # type: ignore[call-overload]
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < end, "not healthy within two minutes"
            time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(75) == 0, "it did not stop in good order"
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Check everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    model = parser.parse_args().model
    assert not (wrong := faults(DOCKERFILE.read_text(encoding="utf-8"))), wrong
    with tempfile.TemporaryDirectory() as folder:
        installed = build(Path(folder))
        run(installed, model, Path(folder))
        files = [path for path in installed.rglob("*") if path.is_file() and not path.is_symlink()]
        size = sum(path.stat().st_size for path in files) / 1e6
    print(f"deploy/Dockerfile: its steps install {size:.0f} MB, which answer and stop as they must")


if __name__ == "__main__":
    main()
