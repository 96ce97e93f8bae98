"""Ctrl-C and SIGTERM end training after the step; a second Ctrl-C ends it at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequest:
    """Holds the name of the signal that came, or None."""

    signal: str | None = None


@contextmanager
def handling(note: Callable[[int], object]) -> Iterator[None]:
    """Call `note` with the number of every SIGINT and SIGTERM instead of dying of it.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = signal.SIGINT, signal.SIGTERM
    before = {n: signal.signal(n, lambda number, _: note(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def stop_on_signals(
    notify: Callable[[str], object] = lambda name: None,
) -> Iterator[StopRequest]:
    """Note SIGINT and SIGTERM instead of dying of them; a later SIGINT: `KeyboardInterrupt`.

    notify: called at once with the first signal's name, in the middle of other work: it must not
    print through a stream, which may be printing already.

    A second SIGTERM changes nothing: what stops a group of processes often sends one to each and
    one through its parent. SIGKILL ends the process at once.

    Outside the main thread it does nothing, as `handling` does.
    """
    request = StopRequest()

    def note(number: int) -> None:
        if request.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        if request.signal is None:
            request.signal = signal.Signals(number).name
            notify(request.signal)

    with handling(note):
        yield request
