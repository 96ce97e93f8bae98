"""Serving under load: 64 clients at once, against one request at a time and offline batches of 64.

    python -m benchmarks.serve MODEL SOURCES [--clients 64] [--seconds 5] [--keep]

MODEL is a model folder that generates, SOURCES a text file, or one in gzip. The server is a process
of its own on loopback, as `pellucid serve` starts it; every client sends its next request when the
last is answered, each with a connection of its own that is kept open. Reported are the latency of
whole answers and of the first text of streamed ones (p50, p95, p99, in milliseconds), answers a
second, and that rate over one client's and over the pipeline's in batches of 64. Every answer is
compared with the pipeline's.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import machine, report

from pellucid.families.folder import load_model


def read_lines(path: Path) -> list[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


class Client:
    """One connection that is kept open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: Any = None
        self.writer: Any = None

    async def ask(self, body: dict[str, Any]) -> tuple[str, float, float]:
        """Return the answer, the seconds until it was whole, and until its first text came."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        raw = json.dumps(body).encode()
        began = time.perf_counter()
        self.writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            % len(raw) + raw
        )  # fmt: skip
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200"), head
        if "content-length" in head:
            length = int(head.split("content-length: ")[1].split("\r\n")[0])
            answer = json.loads(await self.reader.readexactly(length))
            seconds = time.perf_counter() - began
            return answer["choices"][0]["text"], seconds, seconds
        text, first = "", 0.0
        while size := int(await self.reader.readline(), 16):
            chunk = await self.reader.readexactly(size + 2)
            for line in chunk.decode().splitlines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
            first = first or (time.perf_counter() - began if text else 0.0)
        await self.reader.readline()
        return text, time.perf_counter() - began, first

    async def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            await self.writer.wait_closed()


async def load(
    port: int, name: str, texts: list[str], right: dict[str, str], clients: int, seconds: float,
    stream: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return latencies and answers a second of so many clients."""
    taken, times, firsts, wrong = iter(range(10**9)), [], [], 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal wrong
        client = Client(port)
        while time.perf_counter() < end:
            text = texts[next(taken) % len(texts)]
            body = {"model": name, "prompt": text, "stream": stream}
            answer, whole, first = await client.ask(body)
            times.append(whole)
            if answer:
                firsts.append(first)
            wrong += answer != right[text]
        await client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    rate = len(times) / (time.perf_counter() - began)
    assert wrong == 0, f"{wrong} answers differ from the pipeline's"

    def p(values: list[float]) -> list[float]:
        return [round(1000 * float(q), 1) for q in np.quantile(values, [0.5, 0.95, 0.99])]

    return {"answers_per_second": round(rate, 1), "ms": p(times), "first_text_ms": p(firsts)}


@asynccontextmanager
async def server(model: Path, clients: int) -> AsyncIterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "pellucid", "serve", f"model={model}", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().strip().rpartition(":")[2])
    finally:
        process.terminate()
        assert process.wait(60) == 0


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    texts = read_lines(arguments.sources)[: arguments.texts]
    trained: Any = load_model(arguments.model)
    texts = [text for text in texts if 0 < len(trained.source.encode(text)) <= trained.longest]
    speaker = cache(trained.speaker)
    trained.answers(texts[:2], speaker=speaker)  # what is compiled is not measured
    right: dict[str, str] = {}
    began = time.perf_counter()
    for start in range(0, len(texts), 64):
        batch = texts[start : start + 64]
        answers = trained.answers(batch, speaker=speaker)
        right.update(zip(batch, (best[0].text for best in answers), strict=True))
    offline = len(texts) / (time.perf_counter() - began)
    result: dict[str, Any] = {"offline_batches_of_64": round(offline, 1)}
    async with server(arguments.model, arguments.clients) as port:
        await load(port, "model", texts, right, arguments.clients, 2, False)  # warm
        for clients, stream in ((1, False), (arguments.clients, False), (arguments.clients, True)):
            key = f"{clients} clients{', streamed' if stream else ''}"
            result[key] = await load(
                port, "model", texts, right, clients, arguments.seconds, stream
            )
    rate = result[f"{arguments.clients} clients"]["answers_per_second"]
    result["over_one_client"] = round(rate / result["1 clients"]["answers_per_second"], 2)
    result["over_offline"] = round(rate / offline, 2)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    arguments = parser.parse_args()
    measured = asyncio.run(measure(arguments))
    report({"benchmark": "serve", **machine(), **measured}, arguments.keep)


if __name__ == "__main__":
    main()
