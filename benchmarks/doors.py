"""Time the ways that users run a model, with and without kernels.

    python -m benchmarks.doors MODEL SOURCES [--texts 64] [--rounds 5] [--keep]

A ratio of 1 would show that a way silently does without the kernels. MODEL is a model folder that
generates, SOURCES a text file, gzipped or not. Measured are the whole of `pellucid generate --json`
with all texts, loading the folder and the first answer in a new process, and an answer of `pellucid
serve`, one request after another. The fused and the reference path (`PELLUCID_KERNELS=off`) take
turns; each figure is the median of the rounds in seconds (quartiles are kept). Kernels were
compiled before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.machine import machine, quartiles, read_lines, report
from benchmarks.serve import Client, readable, request_for, server, text_of

PATHS = {"fused": "on", "reference": "off"}
FIRST_ANSWER = """
import sys, time
from pathlib import Path
from pellucid.tasks.folder import load_model

began = time.perf_counter()
load_model(Path(sys.argv[1])).generate([sys.argv[2]])
print(time.perf_counter() - began)
"""


def python(*arguments: str) -> str:
    """Run Python with arguments; return its output."""
    return subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def generate_seconds(model: str, texts: list[str]) -> float:
    """Time `pellucid generate --json`, from starting Python to its end."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("\n".join(texts) + "\n")
        file.flush()
        began = time.perf_counter()
        lines = python("-m", "pellucid", "generate", model, "--json", "--file", file.name)
        seconds = time.perf_counter() - began
    assert len(lines.splitlines()) == len(texts)
    return seconds


def request_seconds(model: str, texts: list[str]) -> float:
    """Return the median time of a server's answer, one request after another."""
    seconds = []
    with server("pellucid", "serve", f"model={model}") as (port, _):
        client = Client(port)
        for text in texts[:1] + texts:
            client.ask(text, request_for(text, False))
            while not client.answered():
                pass
            seconds.append(time.perf_counter() - client.began)
            text_of(client.raw)  # raises for an error
        client.socket.close()
    return float(np.median(seconds[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where, model = machine(), str(options.model)
    texts = readable(options.model, read_lines(options.sources)[: options.texts])
    doors: dict[str, Callable[[], float]] = {
        "generate --json": lambda: generate_seconds(model, texts),
        "load and first answer": lambda: float(python("-c", FIRST_ANSWER, model, texts[0])),
        "a served answer": lambda: request_seconds(model, texts),
    }
    result: dict[str, object] = {"benchmark": "doors", "model": options.model.name}
    result["texts"] = len(texts)
    for name, seconds_of in doors.items():
        times: dict[str, list[float]] = {path: [] for path in PATHS}
        for turn in range(options.rounds + 1):
            for path, switch in PATHS.items():
                os.environ["PELLUCID_KERNELS"] = switch
                seconds = seconds_of()
                if turn:  # the first compiles
                    times[path].append(seconds)
        ours, plain = (np.array(times[path]) for path in PATHS)
        result[name] = {
            "fused_s": quartiles(ours, 4),
            "reference_s": quartiles(plain, 4),
            "reference_over_fused": quartiles(plain / ours, 2),
        }
    report(result | where, options.keep)


if __name__ == "__main__":
    main()
