"""What the tests of pages in a browser share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def settle(page: Page) -> None:
    """Wait until what was changed has been drawn."""
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 120))")
