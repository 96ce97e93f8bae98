"""Serving under load: 64 clients at once, against one request at a time and offline batches of 64.

    python -m benchmarks.serve MODEL SOURCES [--clients 64] [--seconds 60] [--peer] [--no-engine]
                               [--keep]
    python -m benchmarks.serve MODEL SOURCES --memory-minutes 10 [--keep]

MODEL is a model folder that generates, SOURCES a text file, or one in gzip. The server is a process
of its own on loopback, as `pellucid serve` starts it; every client sends its next request when the
last is answered, each with a connection of its own that is kept open. Reported are the latency of
whole answers and of the first text of streamed ones (p50, p95, p99, in milliseconds), answers a
second, and that rate over one client's and over the pipeline's in batches of 64; the processor time
for an answer, of the server and of the clients, which share the processors. Every answer is
compared with the pipeline's. One client is measured for a quarter of the seconds, streams for half.

--peer measures CTranslate2 behind the same HTTP layer, too (`benchmarks.serve_peer`), for a third
of the seconds: its answers may differ, and how many do is reported. --no-engine measures the HTTP
layer with nothing behind it, the bound of every engine. --memory-minutes reports the server's
memory over that time under the same load, in megabytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from benchmarks.machine import machine, read_lines, report

from pellucid.tasks.folder import load_model


class Client:
    """One connection, kept open.

    The clients share the processors with the server, so no answer is parsed while time is measured.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.text, self.raw = "", b""
        self.began = self.first = 0.0

    def ask(self, text: str, request: bytes) -> None:
        """Send a request for the answer to a text."""
        self.text, self.raw, self.first = text, b"", 0.0
        self.began = time.perf_counter()
        self.socket.sendall(request)

    def answered(self) -> bool:
        """Read received bytes; return whether the answer is complete."""
        self.raw += self.socket.recv(65536)
        head, _, body = self.raw.partition(b"\r\n\r\n")
        if not self.first and body and body.count(b"data: ") != 1:  # a stream begins empty
            self.first = time.perf_counter()
        length = head.find(b"content-length: ")
        if length < 0:
            return body.endswith(b"\r\n0\r\n\r\n")
        return len(body) == int(head[length + 16 :].split(b"\r\n", 1)[0])

    def answer(self) -> bytes:
        """Return the answer without its id and time, which differ for the same text."""
        begin = self.raw.find(b'{"id"')
        return self.raw[self.raw.find(b"\r\n") :].replace(
            self.raw[begin : self.raw.find(b'"model"', begin)], b""
        )


def request_for(text: str, stream: bool) -> bytes:
    """Return the bytes of a request."""
    body = json.dumps({"model": "model", "prompt": text, "stream": stream}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def text_of(answer: bytes) -> str:
    """Return the text of a complete answer, streamed or not.

    Raises `ValueError` for an error.
    """
    objects = [line.removeprefix(b"data: ") for line in answer.split(b"\n") if b"choices" in line]
    if not objects:
        raise ValueError(f"an error in place of an answer: {answer!r}")
    choices = [json.loads(b"{" + line.lstrip(b"{")) for line in objects]
    return "".join(choice["choices"][0]["text"] for choice in choices)


def load(
    port: int, texts: list[str], right: dict[str, str], clients: int, seconds: float,
    stream: bool = False, peer: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Send requests from several clients; return latencies and answers per second.

    The answers of a peer may differ from the expected ones.
    """
    asked = itertools.cycle([(text, request_for(text, stream)) for text in texts])
    times, firsts, answers = [], [], Counter[tuple[str, bytes]]()
    poll, those = select.epoll(), {}
    cpu, began = time.process_time(), time.perf_counter()
    for client in [Client(port) for _ in range(clients)]:
        those[client.socket.fileno()] = client
        poll.register(client.socket, select.EPOLLIN)
        client.ask(*next(asked))
    running = clients
    while running:
        for file, _ in poll.poll():
            client = those[file]
            if not client.answered():
                continue
            now = time.perf_counter()
            times.append(now - client.began)
            firsts.append(client.first - client.began)
            answers[client.text, client.answer()] += 1
            if now < began + seconds:
                client.ask(*next(asked))
            else:
                client.socket.close()
                running -= 1
    rate = len(times) / (time.perf_counter() - began)
    cpu = time.process_time() - cpu
    poll.close()
    wrong = sum(n for (text, raw), n in answers.items() if text_of(raw) != right[text])
    assert peer or wrong == 0, f"{wrong} answers differ from the pipeline's"

    def p(values: list[float]) -> list[float]:
        return [round(1000 * float(q), 1) for q in np.quantile(values, [0.5, 0.95, 0.99])]

    result = {
        "answers_per_second": round(rate, 1),
        "ms": p(times),
        "client_cpu_ms_per_answer": round(1e3 * cpu / len(times), 3),
    }
    if stream:
        result["first_text_ms"] = p(firsts)
    if peer:
        result["other_answers"] = round(wrong / len(times), 4)
    return result


@contextmanager
def server(*command: str) -> Iterator[tuple[int, psutil.Process]]:
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
    """Return the processor time of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def offline_answers(model: Path, texts: list[str]) -> tuple[dict[str, str], float]:
    """Return the pipeline's answers, and its answers per second in batches of 64."""
    trained: Any = load_model(model)
    decoder = cache(trained.decoder)
    trained.generate_answers(texts[:2], decoder=decoder)  # what is compiled is not measured
    right: dict[str, str] = {}
    began, taken, times = time.perf_counter(), 0.0, 0
    while taken < 2.0:
        for start in range(0, len(texts), 64):
            batch = texts[start : start + 64]
            answers = trained.generate_answers(batch, decoder=decoder)
            right.update(zip(batch, (best[0].text for best in answers), strict=True))
        taken, times = time.perf_counter() - began, times + 1
    return right, times * len(texts) / taken


def readable(model: Path, texts: list[str]) -> list[str]:
    """Return the texts that the model can read."""
    trained: Any = load_model(model)
    return [
        text for text in texts if 0 < len(trained.source.encode(text)) <= trained.max_source_length
    ]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure the server with one client and with many."""
    texts = readable(arguments.model, read_lines(arguments.sources)[: arguments.texts])
    right, offline = offline_answers(arguments.model, texts)
    result: dict[str, Any] = {"offline_batches_of_64": round(offline, 1)}
    many, seconds = arguments.clients, arguments.seconds
    runs = [("1 client", 1, False), (f"{many} clients", many, False),
            (f"{many} clients, streamed", many, True)]  # fmt: skip
    with server("pellucid", "serve", f"model={arguments.model}") as (port, process):
        load(port, texts, right, many, 2)  # warm
        for key, clients, stream in runs:
            before = cpu(process)
            length = seconds / 4 if clients == 1 else seconds / (1 + stream)
            found = load(port, texts, right, clients, length, stream)
            answers = found["answers_per_second"] * length
            found["server_cpu_ms_per_answer"] = round(1e3 * (cpu(process) - before) / answers, 3)
            result[key] = found
        result["mb"] = round(process.memory_info().rss / 1e6, 1)
    rate = result[f"{many} clients"]["answers_per_second"]
    result["over_one_client"] = round(rate / result["1 client"]["answers_per_second"], 2)
    result["over_offline"] = round(rate / offline, 2)
    if arguments.peer:
        with server("benchmarks.serve_peer", str(arguments.model)) as (port, process):
            load(port, texts, right, many, 2, peer=True)
            peer = {
                key: load(
                    port, texts, right, clients, seconds / (12 if clients == 1 else 3), peer=True
                )
                for key, clients, stream in runs
                if not stream
            }
            peer["mb"] = round(process.memory_info().rss / 1e6, 1)
        result["ctranslate2"] = peer
        theirs = peer[f"{many} clients"]["answers_per_second"]
        result["over_ctranslate2"] = round(rate / theirs, 2)
    if arguments.no_engine:
        with server("benchmarks.serve_peer", str(arguments.model), "--no-engine") as (port, _):
            load(port, texts, right, many, 1, peer=True)
            result["no_engine"] = load(port, texts, right, many, seconds / 12, peer=True)
    return result


def measure_memory(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the server's memory under load in ten equal intervals."""
    texts = readable(arguments.model, read_lines(arguments.sources)[: arguments.texts])
    right, _ = offline_answers(arguments.model, texts)
    megabytes = []
    with server("pellucid", "serve", f"model={arguments.model}") as (port, process):
        load(port, texts, right, arguments.clients, 5)
        start = process.memory_info().rss / 1e6
        for part in range(10):
            seconds = 60 * arguments.memory_minutes / 10
            load(port, texts, right, arguments.clients, seconds, stream=bool(part % 2))
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
    parser.add_argument("--no-engine", action="store_true", help="the HTTP layer alone, too")
    parser.add_argument("--memory-minutes", type=float, help="measure memory instead")
    parser.add_argument("--name", help="of the model, in the results")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    arguments = parser.parse_args()
    measure_what = measure_memory if arguments.memory_minutes else measure
    measured = measure_what(arguments)
    about = {"benchmark": "serve", "model": arguments.name or arguments.model.name, **machine()}
    report({**about, **measured}, arguments.keep)


if __name__ == "__main__":
    main()
