"""Run the application: socket, signals, and a shutdown that finishes requests."""

import asyncio
import errno
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from pellucid.apps.serve.connection import Connection, State
from pellucid.apps.serve.service import Service
from pellucid.core.errors import UserError
from pellucid.training.signals import handling

GRACE = 1.0
"""Seconds for which a stopping server still accepts requests: some are in the system's queue, and
load balancers need a moment to notice that it is not ready."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")

SWITCH_SECONDS = 0.0005
"""Interval at which Python switches threads. The model's thread waits for the event loop once per
token; Python's default of 5 ms is longer than a small model takes for one."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket on an address; port 0 takes a free one.

    Raises `UserError` if it cannot: the port is in use, not allowed or out of range, or the
    address is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio: no delay
    if sys.platform != "win32":  # there it would let a second server take a port in use
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(2048)
    except (OSError, OverflowError, TypeError) as error:  # TypeError: a name that no host has
        bound.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} of {host} is in use; choose another: `port`") from None
        raise UserError(f"cannot listen on {host}, port {port}: {error}") from None
    return bound


def address(bound: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's server; SIGTERM and SIGINT let it finish running requests.

    A SIGINT after either of them stops without waiting for the requests.
    """

    server_state: State

    def __init__(self, app: ASGIApp, service: Service) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            ws="none",
            log_level="error",
            http=Connection,
            headers=[("x-content-type-options", "nosniff")],
        )
        super().__init__(config)
        self.server_state = State(service.limits)
        self.unanswered = 0
        """Number of requests that were closed without an answer at the shutdown."""
        self.service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer running requests and those that come within `GRACE`, then stop.

        uvicorn alone would close the connections in the system's queue at once, and those whose
        request it has not read yet.
        """
        self.service.stopping = self.server_state.stopping = True
        await asyncio.sleep(GRACE)
        await super().shutdown(sockets)
        self.unanswered = len(self.server_state.tasks) + self.server_state.dropped

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: `serve` handles signals, and uvicorn would raise them again later."""
        yield

    def signalled(self, number: int) -> None:
        """Begin to stop, on a signal of this number."""
        self.service.stopping = True
        if self.should_exit and number == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def serve(
    app: ASGIApp,
    service: Service,
    bound: socket.socket,
    started: Callable[[Server], object] = lambda server: None,
) -> int:
    """Serve until a signal comes.

    Return the number of requests left without an answer. started: called before the server runs,
    when its signal handlers are set; it may also set the server's `should_exit`.
    """
    server = Server(app, service)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        with handling(server.signalled), bound:
            started(server)
            server.run([bound])
    finally:
        sys.setswitchinterval(interval)
    return server.unanswered
