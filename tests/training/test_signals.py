from __future__ import annotations

import os
import signal
import threading

import pytest

from pellucid.training.signals import stop_on_signals

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(os.name == "nt", reason="signals as POSIX has them"),
]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_is_noted_and_a_second_ctrl_c_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as request:
        assert request.signal is None
        signal.raise_signal(number)
        assert request.signal == number.name
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) is before


def test_a_request_that_comes_by_two_ways_is_one_request() -> None:
    with stop_on_signals() as request:
        signal.raise_signal(signal.SIGINT)
        try:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pytest.fail("a SIGTERM after it interrupted")  # let out, it would end all tests
        assert request.signal == "SIGINT"


def test_the_first_request_is_reported_at_once_and_only_once() -> None:
    reported: list[str] = []
    with stop_on_signals(reported.append):
        signal.raise_signal(signal.SIGTERM)
        assert reported == ["SIGTERM"]
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert reported == ["SIGTERM"]


def test_other_threads_train_without_handlers() -> None:
    seen: list[str | None] = []

    def train() -> None:
        with stop_on_signals() as request:
            seen.append(request.signal)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [None]
