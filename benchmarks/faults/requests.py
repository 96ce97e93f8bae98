"""Send requests that are wrong in one way, and stop the server after many right ones."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks import serve_faults
from benchmarks.faults import models
from benchmarks.faults.mode import Case
from benchmarks.serve_faults import GOOD, get, post

SMALL = b'{"model":"model","prompt":"hello","max_tokens":2}'
MANY, ASKING = 100, 60
LATE = 0.15
"""Seconds from the last request to SIGTERM."""
KNOWN: dict[str, tuple[bytes, str]] = {
    "a right one": (GOOD, "200"),
    "headers of 89 KB in one packet": (get(b"/health", *[b"X: 12345"] * 8_900), "200"),
    "two hosts": (get(b"/health", b"Host: localhost"), "400"),
    "a host that is not ours": (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", "400"),
    "a page of another site": (
        post("/v1/completions", SMALL, b"Content-Length: %d" % len(SMALL),
             b"Content-Type: text/plain", b"Origin: http://evil.example"), "403",
    ),
    "a body of 15 MB": (post("/v1/completions", b" " * 15_000_000), "413"),
    "two lengths": (post("/fill", b"{}", b"Content-Length: 2", b"Content-Length: 3"), "400"),
}  # fmt: skip


class Requests:
    """Each case starts a server: one known wrong request, a stop, or many fuzzed requests."""

    units = "requests"

    def __init__(self, place: Path) -> None:
        self.model = place / "model"
        models.write(self.model)

    def __call__(self, number: int) -> Case:
        """Run one case; the server must exit with 0."""
        seed, number = number, number % 10**6  # the known ones are sent with every seed
        if number == len(KNOWN):
            return self.stopped()
        with serve_faults.server(self.model) as port:
            if number < len(KNOWN):
                return _known(port, number)
            sent = serve_faults.garbage(MANY, seed)
            seen = asyncio.run(serve_faults.raw(port, sent))
            seen[f"then {asyncio.run(serve_faults.good(port))}"] += 1
        wrong = [status for status in seen if status[0] == "5"]
        became = f"STATUS {wrong}" if wrong or not seen["then 200"] else "answered or refused"
        return Case("changed at random", became, MANY, figures=str(dict(seen)) if wrong else "")

    def stopped(self) -> Case:
        """Send many right requests and SIGTERM a moment later: all must have an answer."""
        command = [sys.executable, "-m", "pellucid", "serve", f"model={self.model}", "--port", "0"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().rpartition(":")[2])
            asking = []
            for _ in range(ASKING):
                asking.append(socket.create_connection(("127.0.0.1", port), serve_faults.SECONDS))
                asking[-1].sendall(GOOD)
            time.sleep(LATE)
            process.send_signal(signal.SIGTERM)
            statuses = Counter(serve_faults.status_of(received(one)) for one in asking)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        right = set(statuses) <= {"200", "429", "503"} and "every request was answered" in out
        became = "every one answered" if right and not process.returncode else "NOT ALL ANSWERED"
        told = "" if right else f"{dict(statuses)} {out}"
        return Case(f"SIGTERM {LATE} s after requests", became, ASKING, figures=told)


def received(connection: socket.socket) -> bytes:
    """Return the bytes received until the connection is closed, or shortly after the first."""
    found = b""
    with suppress(OSError), connection:
        while part := connection.recv(65536):
            found += part
            connection.settimeout(0.5)
    return found


def _known(port: int, number: int) -> Case:
    kind, (sent, expected) = list(KNOWN.items())[number]
    connection = socket.create_connection(("127.0.0.1", port), serve_faults.SECONDS)
    with suppress(OSError):
        connection.sendall(sent)
    answer = received(connection)
    became = serve_faults.status_of(answer)
    if became != expected or b"x-content-type-options: nosniff" not in answer.lower():
        return Case(kind, f"NOT {expected}, BUT {became}", figures=str(answer[:300]))
    return Case(kind, became)
