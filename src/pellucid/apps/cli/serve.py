"""`pellucid serve MODEL [MODEL ...]`: answer requests over HTTP."""

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pellucid.apps.cli.language import tr, translated
from pellucid.apps.serve.limits import ROWS
from pellucid.core.errors import UsageError, UserError, optional
from pellucid.data.files import read_lines
from pellucid.training.signals import handling

SEPARATE = "pellucid serve needs starlette, uvicorn, httptools, msgspec and prometheus-client"

ANSWERED = "stopped: every request was answered"


def serve(
    model: tuple[str, ...] = (),
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_keys: Path | None = None,
    rows: int = ROWS,
    max_tokens: int = 1024,
    max_seconds: float = 60.0,
    max_waiting: int = 256,
    accept_changes: bool = False,
) -> int:
    """Serve trained models over HTTP, with the OpenAI and LibreTranslate conventions.

    Each MODEL is a model folder or a run folder, served under the folder's name, or the run's for
    a folder named model; NAME=FOLDER gives another. A model whose name has two language codes,
    as de-en, translates from the first into the second. Only this machine can reach the server,
    unless --host says otherwise. SIGTERM and Ctrl-C stop it once every request is answered, or
    at once while it still loads its models.

    Args:
        model: Models to serve.
        host: Address to listen on; 0.0.0.0 for all of this machine.
        port: Port to listen on; 0 for a free one.
        api_keys: File with the API keys that are let in, one a line; unset: all are let in.
        rows: Most hypotheses that a model generates together.
        max_tokens: Longest answer to each piece of a text, such as a sentence, in tokens.
        max_seconds: Longest time a request may take, in seconds.
        max_waiting: Most texts that may wait; a request that finds no room is refused (429).
        accept_changes: Take models whose files were changed after they were saved.
    """
    if not model:
        raise UsageError("which model? Use `pellucid serve MODEL [MODEL ...]`")
    with handling(_end):
        for name in ("httptools", "msgspec", "prometheus_client", "starlette", "uvicorn"):
            optional(name, SEPARATE, extra="serve")
        from pellucid.apps.serve.app import Application
        from pellucid.apps.serve.limits import Limits
        from pellucid.apps.serve.models import load_models, named_folders
        from pellucid.apps.serve.server import LOOPBACK, address, listen
        from pellucid.apps.serve.server import serve as run_server
        from pellucid.apps.serve.service import Service

        if min(rows, max_tokens, max_waiting) < 1 or not max_seconds > 0:
            raise UsageError(
                "--rows, --max-tokens and --max-waiting are at least 1, --max-seconds above 0"
            )
        keys = _keys(api_keys) if api_keys else []
        folders = named_folders(model)
        with listen(host, port) as bound:
            with ThreadPoolExecutor(1, "pellucid-load") as pool:  # this thread handles signals
                models = pool.submit(load_models, folders, rows, accept_changes).result()
            service = Service(
                models,
                Limits(tokens=max_tokens, seconds=max_seconds, waiting=max_waiting),
                keys,
                (*LOOPBACK, "[::1]") if host in LOOPBACK else (),
            )
            _log_requests()
            begun = tr("serving {} at {}").format(", ".join(models), address(bound))
            unanswered = run_server(
                Application(service),
                service,
                bound,
                started=lambda server: print(begun, flush=True),
            )
    line = "stopped: {} or more requests were not answered"
    print(translated(line.format(unanswered) if unanswered else ANSWERED), flush=True)
    return 0


def _end(number: int) -> None:
    """End the process on a signal while models are loading, with exit code 128 + n.

    Without this, process 1 of a container would ignore signals.
    """
    os.write(2, b"pellucid: stopped before its models were loaded\n")
    os._exit(128 + number)  # another thread may be inside a compiler, which cannot be ended


def _keys(path: Path) -> list[str]:
    """Read API keys from a file.

    Raises `UserError` if it cannot be read, has no key, or has one that is not ASCII.
    """
    keys = list(filter(None, map(str.strip, read_lines(path))))
    if not keys:
        raise UserError(f"{path}: holds no key; write one a line")
    if not all(key.isascii() for key in keys):
        raise UserError(f"{path}: a key has letters that a header cannot carry; use ASCII")
    return keys


def _log_requests() -> None:
    """Log each request, and each model loaded, as a line of JSON on standard error."""
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False  # not written
    log = logging.getLogger("pellucid.apps.serve")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    logging.getLogger("pellucid.tasks.quoting").setLevel(logging.ERROR)
