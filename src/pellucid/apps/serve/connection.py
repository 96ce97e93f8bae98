"""One HTTP connection with time limits; it ends when its client disconnects.

uvicorn has no time limit for the headers of a request, or for a client that does not read its
answer. Fairness between clients, and their number, are left to a proxy.
"""

import asyncio
import math
from typing import Any

from httptools import HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from pellucid.apps.serve.limits import Limits


class State(ServerState):
    """State that all connections of a server share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.stopping = False
        self.dropped = 0
        """Number of requests that came after the last answer of their connection."""


class _Parser(HttpRequestParser):
    """HTTP parser that ignores a request's Upgrade header (RFC 9110, 7.8).

    httptools skips the body of such a request, and would read it as the next request.
    """

    without_upgrade = b""
    """Head of such a request, without its Upgrade header."""

    def feed_data(self, data: Any) -> None:
        """Parse received bytes."""
        while data:
            try:
                super().feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                super().feed_data(self.without_upgrade)
                data = data[upgrade.args[0] :]


class Connection(HttpToolsProtocol):
    """An HTTP connection that is closed when a part of a request takes too long."""

    server_state: State

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parser: _Parser = _Parser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn
        self._limits = self.server_state.limits
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0.0  # bytes that headers may still take
        self._kept = False  # whether the client goes on after the newest request
        self._running: Any = None  # the cycle of the request being answered; `cycle` is the newest

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and end the request that is being answered."""
        self._set_timer(None)
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
            leave = self._running.scope["state"].get("leave")
            if leave is not None:
                leave()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; close the connection if its headers are too large."""
        super().data_received(data)
        self._left -= len(data)
        if self._left < 0:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Start to answer a request, with a time limit for it."""
        if self.parser.should_upgrade():
            self.parser.without_upgrade = self._without_upgrade()
            return
        before, kept = self.cycle, self._kept
        super().on_headers_complete()
        self._kept = self.cycle.keep_alive
        if self.server_state.stopping:  # the newest answer is the last, unless one says so already
            self.cycle.keep_alive = False
            if before is not None and not before.response_started:
                before.keep_alive = kept
        if len(self.pipeline) == 1:
            self.flow.resume_reading()  # else a client that goes is not noticed
        self._left, limits = math.inf, self._limits
        whole = limits.body_seconds + limits.seconds + limits.read_seconds
        self._set_timer(self.transport.abort, whole)

    def on_message_complete(self) -> None:
        """End a body.

        Does nothing for a request to change the protocol: it is parsed again without its Upgrade
        header.
        """
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless the connection closes or one has come already."""
        super().on_response_complete()
        if self.transport.is_closing() and self.server_state.stopping:
            self.server_state.dropped += len(self.pipeline)
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _without_upgrade(self) -> bytes:
        """Return the head of a request without its Upgrade header."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            raise ValueError("this server is no proxy")
        kept = [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([b"%s %s HTTP/%s" % (method, self.url, version), *kept, b"", b""])

    def _wait(self) -> None:
        """Start the time limit for the headers of the next request."""
        self._left = self._limits.head
        self._set_timer(self.transport.close, self._limits.head_seconds)

    def _set_timer(self, call: Any, seconds: float = 0.0) -> None:
        """Replace the timer: call a function after some seconds, or nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if call is None else self.loop.call_later(seconds, call)
