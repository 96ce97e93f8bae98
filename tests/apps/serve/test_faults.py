"""Malformed requests, a quick part of `benchmarks.serve_faults`: never a 5xx, and it goes on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from benchmarks.serve_faults import crowd, documented, garbage, good, halves, raw
from tests.apps.serve.servers import Running, apart, running

from pellucid.apps.serve.limits import Limits


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    limits = Limits(body_seconds=0.5, head_seconds=0.5, tokens=20)
    with running(limits) as server:
        models = server.service.models
        server.service.models = {"model": models["chat"], "bert": models["bert"]}
        yield server


@pytest.fixture(autouse=True)
def answering(server: Running, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each test a good request must be answered, and no failure logged."""
    yield
    assert apart(good(server.port)) == "200"
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == []


def failed(seen: Counter[str]) -> list[str]:
    return [status for status in seen if status.startswith("5")]


def test_cases_of_the_openapi_document(server: Running) -> None:
    seen = documented(server.port, 60)
    assert not failed(seen)
    assert seen["200"]
    assert seen["400"] > 20


def test_garbage(server: Running) -> None:
    seen = apart(raw(server.port, garbage(400)))
    assert not failed(seen)
    assert sum(seen.values()) == 400


def test_requests_that_end_in_the_middle_or_come_slowly(server: Running) -> None:
    seen = apart(halves(server.port, 60, 10))
    assert not failed(seen)
    assert seen["closed"] >= 10


def test_many_open_connections_that_ask_for_nothing(server: Running) -> None:
    assert apart(crowd(server.port, 600)) == {"200": 10}
