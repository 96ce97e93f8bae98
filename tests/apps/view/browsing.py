"""What the tests of pages in a browser share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page


def settle(page: Page) -> None:
    """Wait until what was changed has been drawn."""
    page.evaluate("() => new Promise(done => setTimeout(() => requestAnimationFrame(done), 120))")


CUT = """() => [...document.querySelectorAll("button, select, input")].filter((one) => {
  if (!one.checkVisibility() || one.closest(".scroll, .tree")) return false;
  const style = getComputedStyle(one);
  const around = one.closest(".card") ?? document.body;
  const [box, card] = [one, around].map((e) => e.getBoundingClientRect());
  if (box.right > card.right + 1) return true;
  if (one.matches("button"))
    return style.overflow === "visible" && one.scrollHeight > one.clientHeight + 1;
  if (!one.matches("select")) return false;
  const kept = one.style.maxWidth;
  one.style.maxWidth = "none";
  const whole = one.getBoundingClientRect().width;
  one.style.maxWidth = kept;
  return whole > box.width + 1 && whole < card.width - 80;
}).map((one) => [one.id || one.className, one.textContent.slice(0, 40)])"""
"""Controls that leave their card, texts that leave their button, selects cut without need."""


def cut(page: Page) -> Any:
    """Return the controls of a page whose text is cut, or that leave their card."""
    return page.evaluate(CUT)
