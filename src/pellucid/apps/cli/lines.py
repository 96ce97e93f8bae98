"""Lines from a pipe or a file, in windows small enough to hold, as they arrive."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from pellucid.core.errors import UserError

WINDOW = 512
CHUNK = 2**16  # bytes that are read at once, at most
LONGEST = 2**24  # bytes of a line; a stream without line ends is refused before memory is full

Line = tuple[int, str | UserError]


def given(texts: Iterable[str]) -> Iterator[Line]:
    """Number texts from 1, with an error instead of a text that is not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
            yield number, text
        except UnicodeEncodeError:  # Python holds such a byte as half of a surrogate pair
            yield number, UserError(f"not UTF-8: {text!a}; left out")


def windows(stream: BinaryIO) -> Iterator[list[Line]]:
    """Yield (number from 1, text) of each line of a stream, in lists of at most `WINDOW`.

    Of a text that is not UTF-8 there is an error. A byte order mark before the first line is
    dropped. What has arrived is not kept waiting for more: a program that writes one line and waits
    for its answer gets it. The stream is closed at its end. Raises `UserError` at a line longer
    than any text.
    """
    number, rest, ended = 0, b"", False
    with stream:
        while not ended:
            chunk = stream.read1(CHUNK)  # type: ignore[attr-defined]
            ended = not chunk
            *lines, rest = (rest + chunk).split(b"\n")
            if ended and rest:
                lines.append(rest)
            if number == 0 and lines:
                lines[0] = lines[0].removeprefix(BOM_UTF8)
            for start in range(0, len(lines), WINDOW):
                yield [
                    (number + i, _text(line))
                    for i, line in enumerate(lines[start : start + WINDOW], start + 1)
                ]
            number += len(lines)
            if len(rest) > LONGEST:
                raise UserError(
                    f"line {number + 1}: more than {LONGEST:,} bytes; expected a text a line"
                )


def _text(line: bytes) -> str | UserError:
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        return UserError(f"not UTF-8 (byte 0x{line[error.start]:02x}); line left out")
