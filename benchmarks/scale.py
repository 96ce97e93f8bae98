"""Training with several workers: speed, bytes, slow networks, and workers that are killed.

    python benchmarks/scale.py [--rounds 5] [--length 50] [--keep]     speed, bytes, networks
    python benchmarks/scale.py --kills 20                              kills
    python benchmarks/scale.py --predict 0.42                          the cost model's table

Speed: article 003's model on one batch of 64 pairs. One process with two threads, two workers with
one thread each, and PyTorch in both ways (DistributedDataParallel over gloo) take turns, a step at
a time. Networks: the two workers are in network namespaces of their own, and `tc` slows the link
between them: tbf, and netem for delays; without netem in the kernel the packets to delay pass
through this process. It needs root and Linux, and is left out elsewhere.

Kills: a small run on two workers, of which one at random is killed at random moments; the end must
have the bits of a run on one process that nobody disturbed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import queue
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.machine import machine, quartiles, report

from pellucid.apps.cli.bench import article_config, random_ids
from pellucid.core.batch import Batch, Packed
from pellucid.models import Seq2Seq

HERE = Path(__file__).resolve()
SOURCE = HERE.parents[1] / "src"
SHAPES = {
    "unshaped": (None, 0.0),
    "10 Gbit/s": (10e9, 0.0),
    "1 Gbit/s": (1e9, 0.0),
    "1 Gbit/s, 1 ms": (1e9, 1e-3),
    "1 Gbit/s, 10 ms": (1e9, 1e-2),
}
"""Bits a second and seconds of delay, each way."""
CORES = 2  # of the machine that --predict's seconds are of
ENDS = ("10.77.0.1", "10.77.0.2")


# A process that is measured: it does a step for each line it reads


def measured(workers: Any) -> dict[str, float]:
    """Count the bytes that a worker sends, and the seconds that it waits, from now on."""
    found = {"sent": 0.0, "waited": 0.0}

    def wrapped(exchange: Callable[..., Any], copies: float) -> Callable[..., Any]:
        def exchanged(own: np.ndarray, *more: Any, **options: Any) -> Any:
            found["sent"] += own.nbytes * copies
            began = time.perf_counter()
            result = exchange(own, *more, **options)
            found["waited"] += time.perf_counter() - began
            return result

        return exchanged

    others = workers.size - 1
    workers.all_to_all = wrapped(workers.all_to_all, others / workers.size)
    workers.all_gather = wrapped(workers.all_gather, others)
    return found


def pellucid_side(parts: int | None, length: int) -> Iterator[dict[str, float]]:
    """Train, a step for each `next`, on one process or as one of several workers."""
    from pellucid.optim.model import ModelOptimizer
    from pellucid.optim.step import train_step
    from pellucid.training.config import TrainingConfig
    from pellucid.training.parts import PartSum
    from pellucid.training.torch_workers import join, started_as_worker
    from pellucid.training.workers import Workers

    source, target = random_ids(length)
    batch = Batch(Packed.of(list(source)), Packed.of(list(target)))
    config = TrainingConfig(steps=1, parts=parts)
    workers = join(300.0) if started_as_worker() else Workers()
    model = Seq2Seq(article_config()).train()
    optimizer = ModelOptimizer(model.named_parameters(), config.optimizer)
    part_sum = PartSum(model.named_parameters(), parts, workers) if parts else None
    numbers = sum(p.data.size for p in model.parameters())
    exchanges, step = measured(workers), 0
    while True:
        yield {}
        step += 1
        before, began = dict(exchanges), time.perf_counter()
        cpu = time.process_time()
        train_step(model, optimizer, batch, config, step=step, lr=5e-4, part_sum=part_sum)
        yield {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - cpu,
            **{name: value - before[name] for name, value in exchanges.items()},
            "parameters": numbers,
        }


def torch_side(length: int) -> Iterator[dict[str, float]]:
    """Train the same model in PyTorch, on one process or with DistributedDataParallel."""
    import torch
    from benchmarks.torch_model import TorchTrainer

    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    source, target = (ids[rank::size] for ids in random_ids(length))
    trainer = TorchTrainer(article_config(), int(os.environ["PELLUCID_THREADS"]), pad=-1)
    if size > 1:
        torch.distributed.init_process_group("gloo")

        class Whole(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.parts, self.call = trainer.parts, trainer._call

            def forward(self, *inputs: Any) -> Any:
                return self.call(*inputs)

        trainer._call = torch.nn.parallel.DistributedDataParallel(Whole())
    while True:
        yield {}
        began, cpu = time.perf_counter(), time.process_time()
        trainer.step(source, target)
        yield {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def serve(side: str, parts: int, length: int) -> None:
    """Do a step for each line of standard input, and print what it took."""
    steps = torch_side(length) if side == "torch" else pellucid_side(parts or None, length)
    next(steps)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(next(steps)), flush=True)
        next(steps)


class Side:
    """One process or several workers, which wait until it is their turn."""

    def __init__(
        self, side: str, workers: int, threads: int, length: int, parts: int = 0,
        prefixes: Sequence[Sequence[str]] = ((), ()), address: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        port = free_port()
        self.processes = []
        for rank in range(workers):
            environment = {
                **os.environ, "PYTHONPATH": str(SOURCE), "PELLUCID_THREADS": str(threads),
                "OMP_NUM_THREADS": str(threads),
            }  # fmt: skip
            if workers > 1:
                environment |= {
                    "RANK": str(rank), "WORLD_SIZE": str(workers), "MASTER_ADDR": address,
                    "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(workers),
                    "GLOO_SOCKET_IFNAME": "scale" if address in ENDS else "lo",
                }  # fmt: skip
            command = [*prefixes[rank], sys.executable, str(HERE), "--serve", side]
            command += ["--parts", str(parts), "--length", str(length)]
            self.processes.append(
                subprocess.Popen(
                    command, env=environment, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                )
            )  # fmt: skip
        for process in self.processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise SystemExit(f"{side} with {workers} workers did not start")

    def step(self) -> list[dict[str, float]]:
        """Do one step; return what each worker measured."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [json.loads(p.stdout.readline()) for p in self.processes]  # type: ignore[union-attr]

    def times(self) -> tuple[float, float]:
        """Do one step; return the seconds of the slowest worker, and those of all processors."""
        found = self.step()
        return max(one["seconds"] for one in found), sum(one["cpu"] for one in found)

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


# What is measured


def speed(rounds: int, length: int) -> dict[str, Any]:
    """Let one process and two workers take turns, ours and PyTorch's."""
    sides = {
        "1 x 2 threads": Side("pellucid", 1, 2, length),
        "2 x 1 thread, 2 parts": Side("pellucid", 2, 1, length, 2),
        "2 x 1 thread, 8 parts": Side("pellucid", 2, 1, length, 8),
        "torch 1 x 2 threads": Side("torch", 1, 2, length),
        "torch DDP 2 x 1 thread": Side("torch", 2, 1, length),
    }
    try:
        for side in list(sides.values()) * 2:
            side.step()
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                times[name].append(side.times())
        exchanged = sides["2 x 1 thread, 2 parts"].step()
    finally:
        for side in sides.values():
            side.close()

    def ratio(above: str, below: str) -> dict[str, list[float]]:
        both = np.array(times[above]) / np.array(times[below])
        return {"time": quartiles(both[:, 0], 3), "processor time": quartiles(both[:, 1], 3)}

    least = 2 * 4 * exchanged[0]["parameters"] * (2 - 1) / 2
    return {
        "ms a step": {n: quartiles(np.array(t)[:, 0] * 1e3) for n, t in times.items()},
        "processor ms a step": {n: quartiles(np.array(t)[:, 1] * 1e3) for n, t in times.items()},
        "two workers' speed, one process = 1": {
            "2 parts": ratio("1 x 2 threads", "2 x 1 thread, 2 parts"),
            "8 parts": ratio("1 x 2 threads", "2 x 1 thread, 8 parts"),
            "torch DDP": ratio("torch 1 x 2 threads", "torch DDP 2 x 1 thread"),
        },
        "speed, torch = 1": {
            "one process": ratio("torch 1 x 2 threads", "1 x 2 threads"),
            "two workers": ratio("torch DDP 2 x 1 thread", "2 x 1 thread, 2 parts"),
        },
        "bytes": {
            "a worker's step": [int(found["sent"]) for found in exchanged],
            "2 P (n - 1)/n floats": int(least),
            "more than that": [round(found["sent"] / least - 1, 5) for found in exchanged],
        },
    }


class Relay:
    """A link whose packets pass through this process: where the kernel has no netem for delays."""

    def __init__(self) -> None:
        self.rate, self.delay = 1e9, 0.0
        self.names = [f"sr{os.getpid()}{end}"[:15] for end in "ab"]
        self._ends = [os.open("/dev/net/tun", os.O_RDWR) for _ in self.names]
        for end, name in zip(self._ends, self.names, strict=True):
            fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
        for source, target in (self._ends, self._ends[::-1]):
            under_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
            for work, end in ((self._take, source), (self._give, target)):
                threading.Thread(target=work, args=(end, under_way), daemon=True).start()

    def _take(self, end: int, under_way: Any) -> None:
        free = 0.0
        while True:
            packet = os.read(end, 1 << 16)
            free = max(free, time.perf_counter()) + 8 * len(packet) / self.rate
            under_way.put((free + self.delay, packet))

    def _give(self, end: int, under_way: Any) -> None:
        while True:
            due, packet = under_way.get()
            time.sleep(max(0.0, due - time.perf_counter()))
            with contextlib.suppress(OSError):  # a broadcast that the other end does not take
                os.write(end, packet)


TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


@contextmanager
def namespaces(relay: Relay | None = None) -> Iterator[list[list[str]]]:
    """Make two network namespaces and a link between them; yield what runs a command in each."""
    names = [f"scale{os.getpid()}{end}" for end in "ab"]
    prefixes = [["ip", "netns", "exec", name] for name in names]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        ends = relay.names if relay else [f"sc{os.getpid()}{end}"[:15] for end in "ab"]
        if relay is None:
            pair = ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]
            subprocess.run(pair, check=True)
        for name, end, prefix, own, other in zip(
            names, ends, prefixes, ENDS, ENDS[::-1], strict=True
        ):
            subprocess.run(["ip", "link", "set", end, "netns", name], check=True)
            place = [own, "peer", other] if relay else [f"{own}/24"]
            for command in (
                ["link", "set", end, "name", "scale"],
                ["link", "set", "scale", "mtu", "30000"],
                ["addr", "add", *place, "dev", "scale"],
                ["link", "set", "scale", "up"],
                ["link", "set", "lo", "up"],
            ):
                subprocess.run([*prefix, "ip", *command], check=True)
        yield prefixes
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def shape(prefixes: Sequence[Sequence[str]], rate: float | None, delay: float) -> bool:
    """Slow both ends of the link down; return whether the kernel can."""
    for prefix in prefixes:
        queued, device = [*prefix, "tc", "qdisc"], ["dev", "scale", "root"]
        subprocess.run([*queued, "del", *device], stderr=subprocess.DEVNULL, check=False)
        if rate is None:
            continue
        how = ["tbf", "rate", f"{rate:.0f}bit", "burst", "4mb", "latency", "1s"]
        if delay:
            how = ["netem", "rate", f"{rate:.0f}bit", "delay", f"{delay * 1e3}ms"]
            how += ["limit", "100000"]
        done = subprocess.run([*queued, "add", *device, *how], stderr=subprocess.DEVNULL)
        if done.returncode:
            return False
    return True


def transmitted(prefix: Sequence[str]) -> int:
    """Return the bytes that have left a namespace."""
    found = subprocess.run(
        [*prefix, "cat", "/sys/class/net/scale/statistics/tx_bytes"], capture_output=True, text=True
    ).stdout
    return int(found)


def networks(rounds: int, length: int) -> dict[str, Any]:
    """Train over links of several speeds; compare with the cost model."""
    results: dict[str, Any] = {}
    left = dict(SHAPES)
    for relay in (None, Relay()):
        with namespaces(relay) as prefixes:
            side = Side("pellucid", 2, 1, length, 2, prefixes, ENDS[0])
            try:
                for _ in range(2):
                    side.step()
                for name, (rate, delay) in list(left.items()):
                    if relay:
                        relay.rate, relay.delay = rate or 1e12, delay
                    elif not shape(prefixes, rate, delay):
                        continue
                    del left[name]
                    through = "this process" if relay else "the kernel"
                    results[name] = {
                        "shaped by": through,
                        **one_network(side, prefixes[0], rounds, rate, delay),
                    }
            finally:
                side.close()
        if not left:
            break
    return results


# The cost model of docs/scale.md


def exchange(numbers: float, workers: int, rate: float, delay: float) -> float:
    """Return the seconds of a step's exchanges, which begin when backward has ended.

    rate: bits a second; delay: seconds, one way. An exchange of gloo begins with a request, so it
    takes two delays; an all-gather is a ring of n − 1 of them. There are three exchanges: losses,
    the all-to-all of slices, and the all-gather of the sum.
    """
    return 2 * 32 * numbers * (workers - 1) / workers / rate + (2 + 4 * (workers - 1)) * delay


def predicted(
    cpu: float, numbers: float, workers: int, threads: int, rate: float, delay: float
) -> tuple[float, float]:
    """Return the seconds of a step of `cpu` processor seconds, and the workers' efficiency.

    Every worker has one part.
    """
    alone = cpu / workers / threads
    seconds = alone + exchange(numbers, workers, rate, delay)
    return seconds, alone / seconds


def prediction(cpu: float, numbers: float, threads: int) -> str:
    """Return a table: the efficiency for some numbers of workers and networks.

    The first column's step is as large for any number of workers, the second's grows with it.
    """
    lines = [
        "| workers | network | same batch | batch grows with the workers |",
        "|---:|---|---:|---:|",
    ]
    for workers in (2, 8, 64, 1024):
        for name, rate, delay in (
            ("1 Gbit/s, 0.1 ms", 1e9, 1e-4),
            ("10 Gbit/s, 0.05 ms", 1e10, 5e-5),
            ("100 Gbit/s, 0.01 ms", 1e11, 1e-5),
        ):
            same = predicted(cpu, numbers, workers, threads, rate, delay)[1]
            grown = predicted(cpu * workers, numbers, workers, threads, rate, delay)[1]
            lines.append(f"| {workers:,} | {name} | {same:.0%} | {grown:.0%} |")
    return "\n".join(lines)


def one_network(
    side: Side, prefix: Sequence[str], rounds: int, rate: float | None, delay: float
) -> dict[str, Any]:
    """Measure steps over one link."""
    side.step()
    found: dict[str, list[float]] = {}
    before = transmitted(prefix)
    for _ in range(rounds):
        workers = side.step()
        for key, choose in (("seconds", max), ("waited", min)):
            # The worker that waits least waits for the network, and not for the other one.
            value = choose(worker[key] for worker in workers)
            found.setdefault(key, []).append(value)
    sent = (transmitted(prefix) - before) / rounds
    model = exchange(workers[0]["parameters"], 2, rate, delay) if rate else None
    return {
        **{f"{key} (ms)": quartiles(np.array(value) * 1e3) for key, value in found.items()},
        "bytes that left the first worker, a step": round(sent),
        **(
            {
                "model (ms)": round(model * 1e3, 1),
                "model's error": quartiles(model / np.array(found["waited"]) - 1, 3),
            }
            if model
            else {}
        ),
    }


# Kills

SMALL = """
[data]
train = ["pairs.tsv"]
max_tokens = 11
batch_tokens = 300
[tokenizer]
kind = "char"
[model]
model_type = "pellucid-seq2seq"
d_model = 16
num_attention_heads = 2
ffn_dim = 19
encoder_layers = 1
decoder_layers = 1
max_position_embeddings = 19
[training]
steps = 3000
parts = 8
validate_every = 3000
validate_unit = "steps"
checkpoint_every = 10
log_every = 1000
"""


def kills(count: int, seed: int) -> bool:
    """Kill a worker `count` times while one run goes on; return whether its bits are right."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words = ["".join(draw.choices("abcdefg", k=draw.randint(2, 7))) for _ in range(300)]
        (folder / "pairs.tsv").write_text("".join(f"{w}\t{w[::-1].upper()}\n" for w in words))
        (folder / "small.toml").write_text(SMALL)
        command = [sys.executable, "-m", "pellucid", "train", "small.toml", "--run"]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PELLUCID_THREADS": "1"}
        with (folder / "log").open("w") as log:
            main = subprocess.Popen(
                [*command, "two", "--workers", "2", "--restarts", str(count)],
                cwd=folder, env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        done = 0
        while done < count and main.poll() is None:
            workers = children(main.pid)
            if len(workers) < 2:
                time.sleep(0.05)
                continue
            if done % 4 == 0:  # some while they start, the others some time after a checkpoint
                time.sleep(draw.random() * 4)
            else:
                before = newest(folder)
                while newest(folder) == before and main.poll() is None:
                    time.sleep(0.01)
                time.sleep(draw.random() * 0.5)
            target = draw.choice(workers)
            try:
                os.kill(target, signal.SIGKILL)
            except ProcessLookupError:
                continue
            done += 1
            print(f"kill {done}: worker {workers.index(target)}, {newest(folder)}", flush=True)
            while main.poll() is None and set(children(main.pid)) & set(workers):
                time.sleep(0.05)
        code = main.wait()
        print(f"{done} kills; the run ended with {code}", flush=True)
        subprocess.run([*command, "one"], cwd=folder, env=environment, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        last = Path("checkpoints") / "step-00003000"
        same = code == 0 and all(
            (folder / "one" / last / name).read_bytes()
            == (folder / "two" / last / name).read_bytes()
            for name in ("model.safetensors", "optimizer.safetensors")
        )
        print(f"the same bits as one process that nobody disturbed: {same}")
        if code:
            print((folder / "log").read_text()[-2000:])
    return same and done == count


def newest(folder: Path) -> str:
    """Return the name of the run's newest checkpoint, or that there is none."""
    return max((p.name for p in (folder / "two/checkpoints").glob("step-*")), default="none yet")


def children(parent: int) -> list[int]:
    """Return the workers of torchrun, which runs in the process `parent`."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    found = [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def trains(pid: int) -> bool:
        try:
            return b"pellucid\0train" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return [pid for pid in found if trains(pid)]


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--only", choices=("speed", "networks"))
    parser.add_argument(
        "--predict", type=float, help="print the cost model for a step of so many seconds alone"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.parts, options.length)
        return 0
    if options.kills:
        return int(not kills(options.kills, options.seed))
    if options.predict:
        numbers = sum(p.data.size for p in Seq2Seq(article_config()).parameters())
        print(f"{numbers:,} parameters, {options.predict} s on {CORES} threads a worker")
        print(prediction(options.predict * CORES, numbers, CORES))
        return 0
    result = {
        "benchmark": "scale", "length": options.length, "rounds": options.rounds,
        "machine": machine(),
    }  # fmt: skip
    if options.only != "networks":
        result["speed"] = speed(options.rounds, options.length)
    if options.only == "speed":
        pass
    elif os.name == "posix" and shutil.which("tc") and shutil.which("ip") and os.geteuid() == 0:
        result["networks"] = networks(options.rounds, options.length)
    else:
        print("networks are left out: they need root, ip and tc", file=sys.stderr)
    report(result, options.keep)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
