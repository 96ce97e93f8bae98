"""Limits for requests."""

from dataclasses import dataclass

ROWS = 256
"""Default for the most hypotheses in the batches of one model."""


@dataclass(frozen=True)
class Limits:
    """Limits for each request, and for all of them together."""

    body: int = 262_144
    """The most bytes of a request's body."""
    discarded: int = 16_777_216
    """The most bytes of a too large body that are read before the connection is closed."""
    body_seconds: float = 10.0
    """Time limit for a body to arrive."""
    head: int = 65_536
    """The most bytes that may arrive before a request's headers are complete."""
    head_seconds: float = 10.0
    """Time limit for the headers of a request, including the wait for it."""
    tokens: int = 1024
    """The most tokens of the answer to each piece of a text, such as a sentence."""
    seconds: float = 60.0
    """Time limit for answering a request."""
    read_seconds: float = 30.0
    """Time that a client has to read its answer, besides `body_seconds` and `seconds`."""
    texts: int = 64
    """The most answers in one request: its texts, times the answers to each."""
    waiting: int = 256
    """The most inputs that may wait, of all clients together."""
    records: int = 8
    """The most records for the viewer that may wait or be made, of all clients together."""
    view_tokens: int = 256
    """The most tokens of a text in the viewer."""
    view_answer: int = 128
    """The most tokens of an answer in the viewer."""
