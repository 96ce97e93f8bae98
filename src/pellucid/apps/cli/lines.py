"""Lines from a pipe or a file, in windows small enough to hold, as they arrive."""

from __future__ import annotations

import contextlib
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


def given(texts: Iterable[str]) -> Iterator[Line]:
    """Number texts from 1, with an error instead of a text that is not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
            yield number, text
        except UnicodeEncodeError:  # Python holds such a byte as half of a surrogate pair
            yield number, UserError(f"not UTF-8: {text!a}; left out")


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
    item = arrived.get()
    while isinstance(item, tuple):
        window, closes = [item], time.monotonic() + PATIENCE
        with contextlib.suppress(queue.Empty):
            while len(window) < WINDOW:
                item = arrived.get(timeout=max(closes - time.monotonic(), 0.0))
                if not isinstance(item, tuple):
                    break
                window.append(item)
        yield window
        if isinstance(item, tuple):
            item = arrived.get()
    if item is not None:
        raise item


def standard_input() -> BinaryIO:
    """Open standard input once more: Python cannot end while a thread waits inside sys.stdin."""
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except UnsupportedOperation:  # standard input was replaced by a stream without a number
        return sys.stdin.buffer
