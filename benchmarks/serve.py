"""Serving under load: 64 clients at once, against one request at a time and offline batches of 64.

    python -m benchmarks.serve MODEL SOURCES [--clients 64] [--seconds 60] [--peer] [--keep]
    python -m benchmarks.serve MODEL SOURCES --memory-minutes 10 [--keep]

MODEL is a model folder that generates, SOURCES a text file, or one in gzip. The server is a process
of its own on loopback, as `pellucid serve` starts it; every client sends its next request when the
last is answered, each with a connection of its own that is kept open. Reported are the latency of
whole answers and of the first text of streamed ones (p50, p95, p99, in milliseconds), answers a
second, and that rate over one client's and over the pipeline's in batches of 64; the processor time
of the server for an answer. Every answer is compared with the pipeline's. One client is measured
for a quarter of the seconds.

--peer measures CTranslate2 behind the same HTTP layer, too (`benchmarks.serve_peer`): its answers
may differ, and how many do is reported. --memory-minutes reports the server's memory over that time
under the same load, in megabytes.
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
import psutil
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
    port: int, texts: list[str], right: dict[str, str], clients: int, seconds: float,
    stream: bool = False, peer: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return latencies and answers a second of so many clients; a peer may answer otherwise."""
    taken, times, firsts, wrong = iter(range(10**9)), [], [], 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal wrong
        client = Client(port)
        while time.perf_counter() < end:
            text = texts[next(taken) % len(texts)]
            body = {"model": "model", "prompt": text, "stream": stream}
            answer, whole, first = await client.ask(body)
            times.append(whole)
            if answer:
                firsts.append(first)
            wrong += answer != right[text]
        await client.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    rate = len(times) / (time.perf_counter() - began)
    assert peer or wrong == 0, f"{wrong} answers differ from the pipeline's"

    def p(values: list[float]) -> list[float]:
        return [round(1000 * float(q), 1) for q in np.quantile(values, [0.5, 0.95, 0.99])]

    result = {"answers_per_second": round(rate, 1), "ms": p(times)}
    if stream:
        result["first_text_ms"] = p(firsts)
    if peer:
        result["other_answers"] = round(wrong / len(times), 4)
    return result


@asynccontextmanager
async def server(*command: str) -> AsyncIterator[tuple[int, psutil.Process]]:
    """Run a server; return its port and process."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rpartition(":")[2])
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def offline_answers(model: Path, texts: list[str]) -> tuple[dict[str, str], float]:
    """Return the pipeline's answers, and how many it gives a second in batches of 64."""
    trained: Any = load_model(model)
    speaker = cache(trained.speaker)
    trained.answers(texts[:2], speaker=speaker)  # what is compiled is not measured
    right: dict[str, str] = {}
    began = time.perf_counter()
    for start in range(0, len(texts), 64):
        batch = texts[start : start + 64]
        answers = trained.answers(batch, speaker=speaker)
        right.update(zip(batch, (best[0].text for best in answers), strict=True))
    return right, len(texts) / (time.perf_counter() - began)


def readable(model: Path, texts: list[str]) -> list[str]:
    """Return the texts that the model can read."""
    trained: Any = load_model(model)
    return [text for text in texts if 0 < len(trained.source.encode(text)) <= trained.longest]


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    texts = readable(arguments.model, read_lines(arguments.sources)[: arguments.texts])
    right, offline = offline_answers(arguments.model, texts)
    result: dict[str, Any] = {"offline_batches_of_64": round(offline, 1)}
    many, seconds = arguments.clients, arguments.seconds
    runs = [("1 client", 1, False), (f"{many} clients", many, False),
            (f"{many} clients, streamed", many, True)]  # fmt: skip
    async with server("pellucid", "serve", f"model={arguments.model}") as (port, process):
        await load(port, texts, right, many, 2)  # warm
        for key, clients, stream in runs:
            before = cpu(process)
            length = seconds / 4 if clients == 1 else seconds
            found = await load(port, texts, right, clients, length, stream)
            answers = found["answers_per_second"] * length
            found["server_cpu_ms_per_answer"] = round(1e3 * (cpu(process) - before) / answers, 3)
            result[key] = found
    rate = result[f"{many} clients"]["answers_per_second"]
    result["over_one_client"] = round(rate / result["1 client"]["answers_per_second"], 2)
    result["over_offline"] = round(rate / offline, 2)
    if arguments.peer:
        async with server("benchmarks.serve_peer", str(arguments.model)) as (port, _):
            await load(port, texts, right, many, 2, peer=True)
            peer = {
                key: await load(
                    port, texts, right, clients, seconds / 4 if clients == 1 else seconds, peer=True
                )
                for key, clients, stream in runs
                if not stream
            }
        result["ctranslate2"] = peer
        theirs = peer[f"{many} clients"]["answers_per_second"]
        result["over_ctranslate2"] = round(rate / theirs, 2)
    return result


async def measure_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the server's memory in ten equal parts of the time, under load."""
    texts = readable(arguments.model, read_lines(arguments.sources)[: arguments.texts])
    right, _ = offline_answers(arguments.model, texts)
    megabytes = []
    async with server("pellucid", "serve", f"model={arguments.model}") as (port, process):
        await load(port, texts, right, arguments.clients, 5)
        start = process.memory_info().rss / 1e6
        for part in range(10):
            seconds = 60 * arguments.memory_minutes / 10
            await load(port, texts, right, arguments.clients, seconds, stream=bool(part % 2))
            megabytes.append(round(process.memory_info().rss / 1e6, 1))
    return {"minutes": arguments.memory_minutes, "start_mb": round(start, 1), "mb": megabytes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--peer", action="store_true", help="CTranslate2, too")
    parser.add_argument("--memory-minutes", type=float, help="measure memory instead")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    arguments = parser.parse_args()
    measure_what = measure_memory if arguments.memory_minutes else measure
    measured = asyncio.run(measure_what(arguments))
    about = {"benchmark": "serve", "model": arguments.model.name, **machine()}
    report({**about, **measured}, arguments.keep)


if __name__ == "__main__":
    main()
