"""Check a built site: all links have a target, and nothing is loaded from elsewhere.

python scripts/website/links.py build/site
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "srcset"}
"""Elements that make a browser load a file, and the attribute with its address."""
NAVIGATION = ("canonical", "alternate", "prev", "next")
"""Values of `rel` for which a `<link>` loads nothing."""


class _Page(HTMLParser):
    """The anchors, links and loaded files of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        address = values.get(LOADS.get(tag, ""))
        if address and not (tag == "link" and values.get("rel") in NAVIGATION):
            self.loaded.append(address)


def faults(site: Path) -> Iterator[str]:
    """Yield the errors in a site: links without a target, and files loaded from elsewhere."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        if where.name == "404.html":  # shown at any address, so its links begin at the root
            continue
        for address in page.loaded:
            if urlsplit(address).netloc:
                yield f"{where} loads {address}"
        for address in (*page.links, *page.loaded):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if "=" in anchor:  # the state that a page of a model opens in
                anchor = ""
            if not target.exists():
                yield f"{where} links to {address}, which is not there"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{where} links to {address}, but the page has no such anchor"


def _read(path: Path) -> _Page:
    """Parse a page."""
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def main() -> int:
    """Print the errors of a site; return 1 if there are any."""
    found = list(faults(Path(sys.argv[1])))
    print("\n".join(found) or "every link leads somewhere, and nothing is loaded from elsewhere")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
