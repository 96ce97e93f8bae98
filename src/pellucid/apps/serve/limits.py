"""Limits of requests."""

from dataclasses import dataclass

ROWS = 256
"""Hypotheses in the batch of one model, unless set."""


@dataclass(frozen=True)
class Limits:
    """Limits for one request, and for all together."""

    body: int = 262_144
    """Bytes of a request's body."""
    discarded: int = 16_777_216
    """Bytes of a body that is too large that are read before the connection is closed."""
    body_seconds: float = 10.0
    """Seconds in which a body must have arrived."""
    head: int = 65_536
    """Bytes of a request's headers."""
    head_seconds: float = 10.0
    """Seconds in which a request's headers must have arrived, the wait for it included."""
    tokens: int = 1024
    """Tokens of an answer."""
    seconds: float = 60.0
    """Seconds in which a request must be answered."""
    read_seconds: float = 30.0
    """Seconds in which its client must have read the answer, once it is made."""
    texts: int = 64
    """Texts, or answers to a text, in one request."""
    waiting: int = 256
    """Inputs that may wait, of all clients together."""
    records: int = 8
    """Records that may wait, of all clients together."""
    view_tokens: int = 256
    """Tokens of a text whose record is made."""
    view_answer: int = 128
    """Tokens of the answer in a record."""
