"""One HTTP connection: how long it may take, how long its headers may be, and how many there are.

uvicorn waits for ever for the headers of a request, and for a client that does not read its answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from pellucid.apps.serve.limits import Limits


class State(ServerState):
    """What a server's connections share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.most = min(limits.connections, _files() - 100)
        self.idle: dict[Connection, None] = {}
        """Connections without a request being answered, the one that waits longest first."""


class Connection(HttpToolsProtocol):
    """A connection that is closed when it takes too long.

    Where there are too many, the one that has waited longest for its next request makes room.
    """

    server_state: State

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limits = self.server_state.limits
        self._timer: asyncio.TimerHandle | None = None
        self._head = 0  # bytes since the last request was whole

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room or another can go."""
        super().connection_made(transport)
        if len(self.connections) > self.server_state.most:
            waits = next(iter(self.server_state.idle), self)
            waits.transport.abort()
            self.server_state.idle.pop(waits, None)
            self.connections.discard(waits)
            if waits is self:
                return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it, and tell the application, if it is answering."""
        self._set_timer(None)
        self.server_state.idle.pop(self, None)
        super().connection_lost(exc)
        if self.cycle is not None and self.cycle.disconnected:
            leave = self.cycle.scope["state"].get("leave")
            if leave is not None:
                leave()

    def data_received(self, data: bytes) -> None:
        """Read on; headers that never end are refused."""
        self._head += len(data)
        super().data_received(data)
        waiting = self in self.server_state.idle
        if waiting and self._head > self._limits.head and not self.transport.is_closing():
            self._refuse(431, b"the headers are too long")

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        super().on_headers_complete()
        self.server_state.idle.pop(self, None)
        limits = self._limits
        whole = limits.body_seconds + limits.seconds + limits.read_seconds
        self._set_timer(self.transport.abort, whole)

    def on_message_complete(self) -> None:
        """Note that the body is whole; most are before the application looks at them."""
        super().on_message_complete()
        self.scope["state"]["whole"] = True

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def _wait(self) -> None:
        self._head = 0
        self.server_state.idle[self] = None
        self._set_timer(self._late, self._limits.head_seconds)

    def _late(self) -> None:
        if self._head:
            self._refuse(408, b"the headers did not arrive in time")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: bytes) -> None:
        head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head % len(message) + message)
        self.transport.close()

    def _set_timer(self, call: Any, seconds: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if call is None else self.loop.call_later(seconds, call)


def _files() -> int:
    """Return how many files this process may have open, as many as the system lets it."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else wanted
