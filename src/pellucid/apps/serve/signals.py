"""Handlers of signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Handler = Callable[[int, object], object]


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Let these functions handle signals, by number, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number, handle in handlers.items()}
    try:
        yield
    finally:
        for number, handle in before.items():
            signal.signal(number, handle)
