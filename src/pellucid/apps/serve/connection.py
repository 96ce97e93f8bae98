"""One HTTP connection: how long it may take, how long its headers may be, and how many there are.

uvicorn waits for ever for the headers of a request, and for a client that does not read its answer;
it has no limit of either, and neither does its limit of connections let an idle one go.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from pellucid.apps.serve.limits import Limits

GRACE = 1.0
"""Seconds that a client has to read why it was refused, or that one which has just connected has to
send its request while the server stops."""


class State(ServerState):
    """What a server's connections share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.most = min(limits.connections, _files() - 100)
        self.stopping = False
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
        self._read = 0  # bytes since the last answer
        self._long = self._refused = False
        self._opened = self.loop.time()

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
        """Read on; headers that never end are refused, and what comes after a refusal discarded."""
        if self._refused:
            return
        self._read += len(data)
        super().data_received(data)
        if self in self.server_state.idle and self._read > self._limits.head:
            self._refuse(431, "the headers are too long")
        elif self._read > 2 * self._limits.discarded:  # trailers, which no other limit counts
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        self._long = size > self._limits.head
        if self._long:
            raise ValueError("the headers are too long")  # ends in `send_400_response`
        super().on_headers_complete()
        if self.server_state.stopping:
            self.cycle.keep_alive = False
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

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request."""
        if self._long:
            self._refuse(431, "the headers are too long")
        else:
            self._refuse(400, msg)

    @property
    def expects(self) -> bool:
        """Whether an idle connection has begun a request, or is new and may send its first."""
        new = self.cycle is None and self.loop.time() < self._opened + GRACE
        return not self._refused and (new or self._read > 0)

    def _wait(self) -> None:
        self._read = 0
        self.server_state.idle[self] = None
        self._set_timer(self._late, self._limits.head_seconds)

    def _late(self) -> None:
        if self._read:
            self._refuse(408, "the headers did not arrive in time")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close; a client that still sends could not read it if all closed at once."""
        if self._refused or self.transport.is_closing():
            return
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(message)),
            (b"connection", b"close"),
        ]
        lines = [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", message.encode()]))
        self._refused, self._read = True, 0
        if self in self.server_state.idle and self.transport.can_write_eof():
            self.transport.write_eof()
            self._set_timer(self.transport.close, GRACE)
        else:
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
    most = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if 0 <= soft < most:  # RLIM_INFINITY is negative
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
