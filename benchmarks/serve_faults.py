"""Send malformed requests to `pellucid serve`: never a 5xx, and good requests still work.

    python -m benchmarks.serve_faults MODEL [--requests 10000] [--connections 10000] [--keep]

MODEL is a model folder that generates. The server is a process of its own on loopback. It gets

- cases that schemathesis makes of its OpenAPI document, half of them invalid;
- raw bytes: noise, and requests with bytes changed, left out, or out of order;
- requests that end in the middle, or come a byte at a time;
- as many open connections as asked for, of which each has sent the half of a request.

After each it must answer a good request, and at last exit with 0 on SIGTERM. Reported are the
answers by status ("closed": the connection was closed without one). Needs `schemathesis`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.machine import machine, report

SECONDS = 30
"""Time limit; a server that neither answers nor closes the connection has failed."""


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """Return a POST request; without given headers it has its body's length."""
    given = headers or (b"Content-Length: %d" % len(body),)
    head = [f"POST {path} HTTP/1.1".encode(), b"Host: localhost", *given]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def get(path: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    """Return a GET request."""
    head = [b"GET " + path + b" HTTP/" + version, b"Host: localhost", *headers]
    return b"\r\n".join(head) + b"\r\n\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
CHAT = b'{"model":"model","messages":[{"role":"user","content":"hello"}]}'
FORM = b"q=hello&source=de&target=en"
GOOD = post("/v1/completions", b'{"model":"model","prompt":"hello","max_tokens":2}')
TEMPLATES = [
    GOOD,
    get(b"/health"),
    get(b"/view?model=model&text=hello"),
    get(b"/v1/models/model", b"Connection: keep-alive", version=b"1.0"),
    post("/translate", FORM, b"Content-Type: application/x-www-form-urlencoded",
         b"Content-Length: %d" % len(FORM)),
    post("/v1/chat/completions", b"20\r\n" + CHAT[:32] + b"\r\n%x\r\n" % len(CHAT[32:])
         + CHAT[32:] + b"\r\n0\r\n\r\n", CHUNKED),
]  # fmt: skip
ODD = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    get(b"http://localhost"),
    get(b"//\xff%ff%00/../../etc/passwd"),
    get(b"/v1/models/..%2f..%2fetc%2fpasswd"),
    get(b"/health", version=b"9.9"),
    get(b"/health", b"Host: evil.example"),
    get(b"/health", b"Upgrade: websocket", b"Connection: Upgrade"),
    get(b"/health", b"Expect: 100-continue", b"Content-Length: 5"),
    get(b"/health", *[b"X: y"] * 20_000),
    get(b"/" + b"a" * 100_000),
    post("/fill", b"{}{}{}", b"Content-Length: 5", b"Content-Length: 6"),
    post("/fill", b"{}", b"Content-Length: -1"),
    post("/fill", b"{}", b"Content-Length: 99999999999999999999"),
    post("/fill", b"zz\r\n{}\r\n0\r\n\r\n", CHUNKED, b"Content-Length: 4"),
    post("/fill", b"ffffffffffffffff\r\n{}", CHUNKED),
    b"\r\n" * 1000,
    b"\x00" * 1000,
]


def garbage(number: int, seed: int = 0) -> Iterator[bytes]:
    """Yield requests that are mostly malformed."""
    draw = random.Random(seed)
    for n in range(number):
        if n < len(ODD):
            yield ODD[n]
            continue
        if n % 10 == 0:
            yield draw.randbytes(draw.randrange(1, 2000))
            continue
        sent = bytearray(draw.choice(TEMPLATES))
        for _ in range(draw.randrange(1, 9)):
            place = draw.randrange(len(sent))
            kind = draw.randrange(4)
            if kind == 0:
                sent[place] = draw.randrange(256)
            elif kind == 1:
                del sent[place : place + draw.randrange(1, 20)]
            elif kind == 2:
                sent[place:place] = draw.randbytes(draw.randrange(1, 20))
            else:
                other = draw.randrange(len(sent))
                sent[place:place] = sent[other : other + 30]
            sent = sent or bytearray(b"\r\n")
        yield bytes(sent)


async def send(port: int, parts: list[bytes], pause: float = 0.0, half_close: bool = True) -> str:
    """Send bytes on a new connection.

    Return the status of the first answer, or "closed".
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = asyncio.create_task(reader.read(65536))  # it may come before all is sent
    with suppress(ConnectionError):
        for part in parts:
            if answer.done():
                break
            writer.write(part)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if half_close:
            writer.write_eof()
    received = b""
    with suppress(ConnectionError):
        received = await asyncio.wait_for(answer, SECONDS)
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return status_of(received)


def status_of(received: bytes) -> str:
    """Return the status of an answer, or "closed"."""
    line = received.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return line[1] if len(line) > 1 and line[0].startswith("HTTP/") else "closed"


async def raw(port: int, requests: Iterator[bytes], together: int = 50) -> Counter[str]:
    """Send requests; return how often each status came."""
    seen: Counter[str] = Counter()

    async def one() -> None:
        for sent in requests:
            seen[await send(port, [sent])] += 1

    await asyncio.gather(*(one() for _ in range(together)))
    return seen


async def halves(port: int, number: int, slow: int, seed: int = 0) -> Counter[str]:
    """Send requests that end in the middle, and `slow` ones that come a byte at a time.

    Returns how often each status came.
    """
    draw, seen = random.Random(seed), Counter[str]()
    gate = asyncio.Semaphore(100)

    async def cut() -> None:
        whole = draw.choice(TEMPLATES)
        async with gate:
            seen[await send(port, [whole[: draw.randrange(1, len(whole))]])] += 1

    async def drip() -> None:
        whole = draw.choice(TEMPLATES)
        bytes_ = [whole[i : i + 1] for i in range(len(whole) - 1)]
        seen[await send(port, bytes_, pause=0.2, half_close=False)] += 1

    await asyncio.gather(*(cut() for _ in range(number)), *(drip() for _ in range(slow)))
    return seen


async def crowd(port: int, number: int) -> Counter[str]:
    """Hold many connections open; return the statuses of ten good requests meanwhile."""
    gate, held = asyncio.Semaphore(200), []

    async def one() -> None:
        async with gate:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(GOOD[:60])
                held.append(writer)

    await asyncio.gather(*(one() for _ in range(number)))
    assert len(held) == number, f"only {len(held)} connections could be opened here"
    seen = Counter([await good(port) for _ in range(10)])
    for writer in held:
        writer.close()
    return seen


async def good(port: int) -> str:
    """Return the status of a good request."""
    return await send(port, [GOOD], half_close=False)


def documented(port: int, number: int, seed: int = 0) -> Counter[str]:
    """Send cases made from the OpenAPI document; return how often each status came.

    Of the POST requests half are invalid.
    """
    import hypothesis
    import requests
    import schemathesis

    url = f"http://127.0.0.1:{port}"
    document = requests.get(f"{url}/openapi.json", timeout=SECONDS).json()
    names = [
        model["id"] for model in requests.get(f"{url}/v1/models", timeout=SECONDS).json()["data"]
    ]
    _name_models(document, names)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=url)
    operations = [operation.ok() for operation in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method == "post"]
    seen: Counter[str] = Counter()
    session = requests.Session()
    for operation in operations:
        modes = list(schemathesis.GenerationMode) if operation in posts else [
            schemathesis.GenerationMode.POSITIVE
        ]  # fmt: skip
        for mode in modes:

            @hypothesis.seed(seed)
            @hypothesis.settings(
                max_examples=max(1, number // (2 * len(posts))), deadline=None, database=None,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.generate],
            )  # fmt: skip
            @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                answer = case.call(session=session, timeout=SECONDS)
                seen[str(answer.status_code)] += 1
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)

            ask()
    return seen


def _name_models(node: Any, names: list[str]) -> None:
    """Set every `model` in the document to a served one, so that some requests are valid."""
    if isinstance(node, dict):
        if "model" in node and isinstance(node["model"], dict) and "type" in node["model"]:
            node["model"]["enum"] = names
        for value in node.values():
            _name_models(value, names)


@contextmanager
def server(model: Path) -> Iterator[int]:
    """Run a server; it must exit with 0 when it is stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", f"model={model}", "--port", "0",
         "--max-tokens", "64"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().strip().rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, "the server did not stop in good order"
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    n = arguments.requests
    found: dict[str, Counter[str]] = {}
    with server(arguments.model) as port:
        phases = {
            "documented": lambda: documented(port, n * 4 // 10),
            "raw": lambda: asyncio.run(raw(port, garbage(n * 5 // 10))),
            "halves": lambda: asyncio.run(halves(port, n // 10, n // 100)),
            "crowd": lambda: asyncio.run(crowd(port, arguments.connections)),
        }
        for name, phase in phases.items():
            found[name] = phase()
            assert asyncio.run(good(port)) == "200", f"after {name} a good request has no answer"
            wrong = [status for status in found[name] if status.startswith("5")]
            assert not wrong, (name, found[name])
    sent = sum(sum(found[name].values()) for name in ("documented", "raw", "halves"))
    measured = {name: dict(sorted(counts.items())) for name, counts in found.items()}
    report(
        {"benchmark": "serve_faults", **machine(), "requests": sent,
         "connections": arguments.connections, **measured}, arguments.keep,
    )  # fmt: skip


if __name__ == "__main__":
    main()
