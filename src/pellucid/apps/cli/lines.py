"""Lines from a pipe or a file, in windows small enough to hold, as they arrive."""

from __future__ import annotations

import queue
import sys
import threading
import time
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from io import UnsupportedOperation
from typing import BinaryIO

from pellucid.core.errors import UserError

WINDOW = 512
LONGEST = 2**24  # bytes of a line; a stream without line ends is refused before memory is full
PATIENCE = 0.02  # seconds that a window stays open for the next line

Line = tuple[int, str | UserError]


def decoded(stream: BinaryIO) -> Iterator[Line]:
    """Yield (number from 1, text) of each line, with an error instead of a text that is not UTF-8.

    A byte order mark before the first line is dropped. Raises `UserError` at a line longer than
    any text.
    """
    for number, line in enumerate(iter(lambda: stream.readline(LONGEST), b""), 1):
        if len(line) == LONGEST:
            raise UserError(f"line {number}: more than {LONGEST:,} bytes; expected a text a line")
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        try:
            yield number, line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield number, UserError(f"not UTF-8 (byte 0x{line[error.start]:02x}); line left out")


def given(texts: Iterable[str]) -> list[Line]:
    """Number texts from 1, with an error instead of a text that is not UTF-8."""
    return [
        (number, UserError(f"not UTF-8: {text!a}; left out") if _broken(text) else text)
        for number, text in enumerate(texts, 1)
    ]


def windows(stream: BinaryIO) -> Iterator[list[Line]]:
    """Yield the lines of a stream in lists of at most `WINDOW`, without waiting for a full one.

    A program that writes one line and waits for its answer gets it. At most two windows are held,
    however long the stream. It is closed at its end.

    Raises what reading the stream raises, once the lines before it have been yielded.
    """
    arrived: queue.Queue[Line | BaseException | None] = queue.Queue(WINDOW)

    def read() -> None:
        try:
            with stream:  # closed by the thread that reads it: another would wait for the next line
                for line in decoded(stream):
                    arrived.put(line)
            arrived.put(None)
        except BaseException as error:  # raised again where the windows are read
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        window, last = _window(arrived)
        if window:
            yield window
        if isinstance(last, BaseException):
            raise last
        if last is None:
            return


def _broken(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # Python holds such a byte as half of a surrogate pair
        return True
    return False


def _window(
    arrived: queue.Queue[Line | BaseException | None],
) -> tuple[list[Line], Line | BaseException | None]:
    """Wait for a line; return it with those that follow at once, and the last item received."""
    window: list[Line] = []
    item = arrived.get()
    closes = time.monotonic() + PATIENCE
    while isinstance(item, tuple):
        window.append(item)
        if len(window) == WINDOW:
            break
        try:
            item = arrived.get(timeout=max(closes - time.monotonic(), 0.0))
        except queue.Empty:
            break
    return window, item


def standard_input() -> BinaryIO:
    """Open standard input once more: Python cannot end while a thread waits inside sys.stdin."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except UnsupportedOperation:  # standard input was replaced by a stream without a number
        return sys.stdin.buffer
