"""A fork while another thread compiles or imports a kernel leaves a child that can do both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType

import pytest

from pellucid.core import dispatch
from pellucid.kernels.backend.compile import Kernel

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system"),
]


def survives(work: Callable[[], object], begun: threading.Event) -> bool:
    """Whether a child forked while a thread does `work` can do the same work."""
    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60), "it has not begun"
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # a child that hangs ends here
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    thread.join()
    return status == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_a_kernel_that_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, kernel = threading.Event(), Kernel(len, ("i8",))

    def slowly() -> Callable[..., int]:
        begun.set()
        time.sleep(0.5)
        return len

    monkeypatch.setattr(kernel, "_load", slowly)
    assert survives(kernel.compile, begun)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_a_kernel_that_is_being_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    class Slow:
        """Finds one module, which takes long to run."""

        def find_spec(self, name: str, *_: object) -> object:
            if name != "pellucid.kernels.slow":
                return None
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, self)  # type: ignore[arg-type]

        def create_module(self, _: object) -> None:
            return None

        def exec_module(self, module: ModuleType) -> None:
            begun.set()
            time.sleep(0.5)
            module.kernel = None  # type: ignore[attr-defined]

    monkeypatch.setattr(sys, "meta_path", [Slow(), *sys.meta_path])
    assert survives(lambda: dispatch.kernel_of("slow"), begun)


def test_a_fork_waits_without_holding_what_an_import_needs() -> None:
    """Importing Numba asks logging for loggers; logging's own hook holds that during a fork."""
    script = """
import os, threading, time
import pellucid, logging
from pellucid.kernels.backend.compile import compiling
begun = threading.Event()
def work():
    with compiling:
        begun.set()
        time.sleep(0.5)
        logging.getLogger("of a module that is imported")
thread = threading.Thread(target=work)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
thread.join()
"""
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, timeout=30, check=False).returncode == 0
