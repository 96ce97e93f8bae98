"""benchmarks/serve.py: how an answer of the server is read."""

from __future__ import annotations

import pytest

pytest.importorskip("psutil")  # of the extra lab

from benchmarks.serve import text_of

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"


def test_the_text_of_an_answer_is_read_whole_and_streamed() -> None:
    assert text_of(HEAD + b'{"id": "1", "choices": [{"text": "a b"}]}') == "a b"
    parts = b"".join(b'data: {"choices": [{"text": "%s"}]}\n\n' % part for part in (b"a", b" b"))
    assert text_of(HEAD + parts + b"data: [DONE]\n\n") == "a b"


def test_an_error_in_place_of_an_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="no such model"):
        text_of(b'HTTP/1.1 404 Not Found\r\n\r\n{"error": {"message": "no such model"}}')
