"""Workers that exchange numbers through PyTorch's `torch.distributed`, with gloo; `[scale]`.

`torchrun`, or anything that sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, starts the
processes. Arrays are NumPy's, and PyTorch sends them from where they are.

When a worker fails, it leaves its error in the store that all of them reach. The others find their
connections closed, look there, and all end; one of them, the first if it can, says why. Where
torchrun restarts the workers, a worker that died is replaced, and the run goes on from its newest
checkpoint; after an error there is nothing to go on with, and the replacements end at once.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import numpy as np

from pellucid.core.errors import UserError, optional
from pellucid.core.settings import changes
from pellucid.kernels.backend.machine import environment, processor, processors
from pellucid.kernels.device import import_torch
from pellucid.training.attempts import end_all_attempts
from pellucid.training.workers import Array, LostWorkerError, Workers

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
RESTARTS, MOST_RESTARTS = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"
RUN = "TORCHELASTIC_RUN_ID"
TIMEOUT = 600.0
UNLIMITED = timedelta(days=365)  # to wait for work without a limit of time: decoding held-out texts
GRACE = 3.0  # seconds that workers have to report why they end
SAME = ("pellucid", "numpy", "numba", "kernels")  # the rest changes results in their last bits only


class SilentExit(SystemExit):
    """The end of a worker whose error another one reports."""


class TorchWorkers(Workers):
    """One of several workers, of a process group that is made in `store`.

    timeout: seconds to wait for another worker's numbers. restarts: how many restarts of all
    workers there were before.
    """

    def __init__(
        self, store: Any, rank: int, size: int, *, timeout: float = TIMEOUT, restarts: int = 0
    ) -> None:
        torch = require_torch()
        self._tensor = torch.from_numpy
        self._dist = dist = torch.distributed
        self.rank, self.size, self.timeout = rank, size, timeout
        self._whole = store
        self._store = dist.PrefixStore(f"attempt {restarts}", store)
        self._groups: dict[bool, Any] = {}
        with self._connecting():
            self.begun = restarts > 0 and store.check(["begun"])
            for patient, limit in ((False, timedelta(seconds=timeout)), (True, UNLIMITED)):
                prefixed = dist.PrefixStore(f"patient {patient}", self._store)
                self._groups[patient] = dist.ProcessGroupGloo(prefixed, rank, size, limit)

    # Exchanges

    def all_to_all(self, send: Array, got: Sequence[int]) -> Array:
        """Send every worker its slice, and receive one of each; see `Workers`."""
        received, each = np.empty(sum(got), send.dtype), len(send) // self.size
        self._exchange(
            lambda group: group.alltoall_base(
                self._tensor(received),
                self._tensor(send),
                list(got),
                [each] * self.size,
                self._dist.AllToAllOptions(),
            )
        )
        return received

    def all_gather(self, own: Array, *, patient: bool = False) -> Array:
        """Return the vectors of all workers as rows; see `Workers`."""
        whole = np.empty((self.size, *own.shape), own.dtype)
        tensors = [self._tensor(row) for row in whole]
        self._exchange(lambda group: group.allgather([tensors], [self._tensor(own)]), patient)
        return whole

    def broadcast(self, arrays: Sequence[Array]) -> None:
        """Give every worker the first one's numbers, in place, in one message."""
        options = self._dist.BroadcastOptions()
        options.rootRank = 0
        whole = np.concatenate([np.ascontiguousarray(a).ravel().view(np.uint8) for a in arrays])
        self._exchange(lambda group: group.broadcast([self._tensor(whole)], options))
        end = 0
        for array in arrays:
            start, end = end, end + array.nbytes
            array[...] = whole[start:end].view(array.dtype).reshape(array.shape)

    def _exchange(self, begin: Callable[[Any], Any], patient: bool = False) -> None:
        """Begin an exchange in a process group, and wait for its end."""
        with self._connecting():
            begin(self._groups[patient]).wait()

    @contextmanager
    def _connecting(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # all that gloo and the store raise
            raise LostWorkerError(str(error)) from None

    # The end of one is the end of all

    def begin(self) -> None:
        """Note that the run has begun."""
        if self.rank == 0:
            self._whole.set("begun", "yes")

    def close(self) -> None:
        """Close the connections, so that the others notice; numbers on their way are lost."""
        self._groups = {}

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            with suppress(RuntimeError):
                self._store.set("done", "yes")
            self.close()
            return
        if isinstance(error, SilentExit):
            return
        # What stops the others may send a signal here before there is a message.
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lost = isinstance(error, LostWorkerError)
        reason = self._reason(str(error)) if lost else self._own_reason(error)
        if reason is None:
            raise SilentExit(0)
        if not self._reports():
            raise SilentExit(1)
        if lost:
            raise UserError(reason) from None

    def _own_reason(self, error: BaseException) -> str:
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        reason = f"worker {self.rank}: {text}"
        with suppress(RuntimeError):
            # The first error is kept: others may follow from it.
            self._store.compare_set("error", "", reason)
            self._end_all()
        self.close()
        return reason

    def _reason(self, found: str) -> str | None:
        """Find out why a connection was lost; None: another worker ended without an error."""
        hangs = "imed out" in found
        try:
            self._store.set(f"here {self.rank}", "yes")
            self.close()
            ends = time.monotonic() + GRACE
            here: list[int] = []
            while time.monotonic() < ends and len(here) < self.size:
                if self._store.check(["error"]):
                    return str(self._store.get("error").decode())
                if self._store.check(["done"]):
                    return None
                here = [r for r in range(self.size) if self._store.check([f"here {r}"])]
                time.sleep(0.05)
            missing = [str(r) for r in range(self.size) if r not in here]
            if hangs:
                self._end_all()
        except RuntimeError:  # the store is gone too
            missing = []
        named = f"worker{'s' * (len(missing) > 1)} {', '.join(missing)}" if missing else "a worker"
        what = f"did not answer for {self.timeout:g} s" if hangs else "died"
        left = int(os.environ.get(MOST_RESTARTS, 0)) > int(os.environ.get(RESTARTS, 0))
        then = (
            "all start again from the newest checkpoint"
            if left and not hangs
            else "all have ended, and what was saved is whole: resume the run"
        )
        return f"{named} of {self.size} {what}; {then}"

    def _end_all(self) -> None:
        """Let nobody start these workers again."""
        end_all_attempts()  # on this machine, quickly
        self._whole.set("over", "yes")

    def _reports(self) -> bool:
        """Whether this worker is the one that reports an error: the first, if it is there."""
        with suppress(RuntimeError):
            ends = time.monotonic() + (0 if self.rank == 0 else GRACE + 2 + 0.1 * self.rank)
            while time.monotonic() < ends:
                if self._store.check(["reported"]):
                    return False
                time.sleep(0.05)
            return int(self._store.add("reported", 1)) == 1
        return self.rank < 2


def require_torch() -> Any:
    """Return PyTorch. Raises `UserError` saying how to install it."""
    torch = import_torch("training with several workers")
    optional("torch.distributed", "this PyTorch is built without torch.distributed")
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        raise UserError("this PyTorch has no gloo, which workers exchange numbers with")
    return torch


def started_as_worker(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether this process was started as one of several workers.

    >>> started_as_worker({"RANK": "0"})
    False
    """
    return all(name in environ for name in VARIABLES)


def join(timeout: float = TIMEOUT) -> Workers:
    """Connect to the run's other workers, and return this process's rank among them.

    Rank, number and address come from the environment, as torchrun sets it. The workers of a
    machine divide its processors, unless PELLUCID_THREADS is set. Raises `UserError` when the
    others do not answer within `timeout` seconds.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    os.environ.setdefault("PELLUCID_THREADS", str(max(1, processors() // here)))
    torch = require_torch()
    from torch.distributed.rendezvous import rendezvous

    address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
    except (RuntimeError, ValueError, OSError) as error:
        if "EADDRINUSE" in str(error):
            raise UserError(
                f"{address} is in use by another process; give another MASTER_PORT, or 0 to "
                "torchrun, which then takes a free one"
            ) from None
        raise UserError(
            f"no connection to the other workers at {address} within {timeout:g} s; start all of "
            "them, and check the address and the network"
        ) from None
    store = torch.distributed.PrefixStore(f"pellucid {os.environ.get(RUN, '')}", store)
    restarts = int(os.environ.get(RESTARTS, 0))
    if restarts and store.check(["over"]):
        raise SilentExit(1)
    try:
        return TorchWorkers(store, rank, size, timeout=timeout, restarts=restarts)
    except LostWorkerError as error:
        raise UserError(
            f"worker {rank} of {size} did not reach the others within {timeout:g} s; were all "
            f"started, and can they reach each other? GLOO_SOCKET_IFNAME names the network "
            f"interface ({error})"
        ) from None


def check_alike(workers: Workers, arguments: Sequence[str]) -> list[str]:
    """Raise `UserError` unless all workers run the same software with the same arguments.

    Returns what differs between their machines, which changes the last bits of results.
    """
    found = {**environment(), "processor": processor()}
    workers.agree("software", {name: found[name] for name in SAME})
    workers.agree("arguments", {"arguments": list(arguments)})
    others = {k: v for k, v in found.items() if k not in (*SAME, "blas threads")}
    first, *rest = workers.gather_json(others)
    return sorted(line for other in rest for line in changes(first, other))
