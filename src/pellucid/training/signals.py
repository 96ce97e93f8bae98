"""Signals: Ctrl-C and SIGTERM end training after the step, a later Ctrl-C at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StopRequest:
    """A request to stop: `signal` is the name of the signal that asked for it, or None."""

    signal: str | None = None


@contextmanager
def handling(note: Callable[[int], object]) -> Iterator[None]:
    """Call `note` with the number of every SIGINT and SIGTERM; the process goes on.

    Outside the main thread, where Python allows no handlers, it does nothing.
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
    """Record SIGINT or SIGTERM instead of ending the process.

    Yield the request to stop. A later SIGINT raises `KeyboardInterrupt`. A second SIGTERM changes
    nothing, because programs that stop a group of processes often send one to each process and
    another through its parent.

    notify: called at once with the first signal's name, in the middle of other work. It must not
    print through a stream, which may be in use. Outside the main thread this does nothing, as
    `handling`.
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
