"""Run commands in forked children, which start fast and leave no trace in the parent."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pellucid.apps.cli.main import main

MOST_SECONDS = 10.0
"""Time limit of a command, in seconds of work and of waiting; waiting for a processor does not
count."""
MOST_MEMORY = 6 * 2**30
KILLED = 137


@dataclass(frozen=True)
class Ended:
    """How a child ended: exit code, output, and seconds."""

    code: int
    out: str
    err: str
    seconds: float
    slow: bool
    """Whether it had to be stopped."""


def run(
    body: Callable[[], int], place: Path, stdin: bytes = b"", most: float = MOST_SECONDS
) -> Ended:
    """Run a function in a forked child whose working folder is `place`; return how it ended.

    A child gets SIGINT, as from Ctrl-C, after `most` seconds, and SIGKILL `MOST_SECONDS` later.
    """
    given, out, err = (place / f".{name}" for name in ("stdin", "stdout", "stderr"))
    given.write_bytes(stdin)
    sys.stdout.flush()
    began, slow, seconds = time.monotonic(), False, 0.0
    child = os.fork()
    if not child:
        _in_child(body, place, given, out, err)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        seconds = time.monotonic() - began - _waited(child)
        if seconds > most + slow * MOST_SECONDS:
            os.kill(child, signal.SIGKILL if slow else signal.SIGINT)
            slow = True
        time.sleep(0.01)
    texts = [path.read_bytes().decode("utf-8", "replace") for path in (out, err)]
    for path in (given, out, err):
        path.unlink()
    return Ended(os.waitstatus_to_exitcode(status), *texts, seconds, slow)


def command(words: list[str], place: Path, stdin: bytes = b"", most: float = MOST_SECONDS) -> Ended:
    """Run one command line of Pellucid."""
    return run(lambda: main(words), place, stdin, most)


def start(body: Callable[[], int], place: Path) -> int:
    """Start a function in a forked child without output; return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        nothing = Path(os.devnull)
        _in_child(body, place, nothing, nothing, place / ".stderr")
    return child


def warm(place: Path, *commands: list[str]) -> None:
    """Run commands in this process, so that its children find modules and kernels loaded."""
    with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()) as out:
        for words in commands:
            if main(words):
                raise RuntimeError(f"{words} failed: {out.getvalue()}")


def _in_child(body: Callable[[], int], place: Path, given: Path, out: Path, err: Path) -> None:
    """Run the function in the child, and exit."""
    code = KILLED
    try:
        os.setpgid(0, 0)
        for path, number, flags in (
            (given, 0, os.O_RDONLY),
            (out, 1, os.O_WRONLY | os.O_CREAT),
            (err, 2, os.O_WRONLY | os.O_CREAT),
        ):
            os.dup2(os.open(path, flags, 0o600), number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        os.chdir(place)
        code = body()
        sys.stdout.flush()
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def _waited(child: int) -> float:
    """Return the seconds that a running child was ready to run but had no processor."""
    try:
        return int(Path(f"/proc/{child}/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # it has just ended
        return 0.0


def verdict(ended: Ended) -> str:
    """Describe how a command ended; capitals mark a failure."""
    if ended.slow:
        return "SLOW"
    if "Traceback" in ended.err or "This is a bug" in ended.err:
        return "TRACEBACK"
    if ended.code not in (0, 1, 2):
        return f"EXIT CODE {ended.code}"
    return "done" if ended.code == 0 else "refused"
