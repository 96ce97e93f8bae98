"""Start several workers on this machine, as `torchrun --standalone` does."""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence

from pellucid.core.errors import UserError
from pellucid.kernels.backend.machine import processors
from pellucid.system.language import plural
from pellucid.training.torch_workers import require_torch

RESTARTS = 3


def launch(arguments: Sequence[str], workers: int, restarts: int = RESTARTS) -> int:
    """Run `pellucid train` with these arguments in several workers; return their exit code.

    A worker that dies makes torchrun start all of them again, so often at most. Raises `UserError`
    without PyTorch, and when a worker was killed once too often.
    """
    require_torch()
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # The workers' threads share the cores; they talk to each other on this machine only.
    os.environ.setdefault("PELLUCID_THREADS", str(max(1, processors() // workers)))
    os.environ.setdefault("OMP_NUM_THREADS", os.environ["PELLUCID_THREADS"])
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",  # a free port
        max_restarts=restarts,
    )
    logging.disable(logging.CRITICAL)  # a worker or the code below reports what happened
    try:
        command = ("-m", "pellucid", "train", *without_workers(arguments))
        elastic_launch(config, sys.executable)(*command)
    except SignalException as stop:
        return 128 + int(stop.sigval)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise UserError(
                f"worker {rank} was killed by {signal.Signals(-failure.exitcode).name}, and the "
                f"workers had been started again {restarts} {plural(restarts, 'time')}; what was "
                "saved is whole: resume the run from its newest checkpoint"
            ) from None
        return int(failure.exitcode)
    finally:
        logging.disable(logging.NOTSET)
    return 0


def without_workers(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without those for this process, which starts the workers.

    >>> without_workers(["g2p", "--workers", "4", "--restarts=9", "--seed", "1"])
    ['g2p', '--seed', '1']
    """
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("--workers", "--restarts"):
            next(words, None)
        elif word.partition("=")[0] not in ("--workers", "--restarts"):
            kept.append(word)
    return kept
