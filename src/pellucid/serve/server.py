"""Running the application: the socket, the signals, and a stop that answers what runs."""

from __future__ import annotations

import errno
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from pellucid.core.errors import UserError
from pellucid.serve.service import Service

LOOPBACK = ("127.0.0.1", "::1", "localhost")

SWITCH_SECONDS = 0.0005
"""How soon a thread that runs Python lets another: the model's waits for the event loop's once a
token, which with Python's own 5 ms is longer than a small model takes."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; port 0 takes a free one.

    Raises `UserError` when the port is in use, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio: no delay
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
    except (OSError, OverflowError) as error:
        bound.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} of {host} is in use; choose another: --port") from None
        raise UserError(f"cannot listen on {host}, port {port}: {error}") from None
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL that a socket answers at."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server, which SIGTERM and SIGINT let finish what runs; a second SIGINT does not."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws="none",
            h11_max_incomplete_event_size=65536,
        )
        super().__init__(config)
        self.service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals here: uvicorn would send them again when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _stop(self, number: int, _: object) -> None:
        self.service.stopping = True
        if self.should_exit and number == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(
    app: ASGIApp,
    service: Service,
    bound: socket.socket,
    started: Callable[[Server], object] = lambda server: None,
) -> None:
    """Answer requests until a signal comes; `started` may set the server's `should_exit`, too."""
    server = Server(app, service)
    started(server)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with bound:
            server.run([bound])
    finally:
        sys.setswitchinterval(interval)
