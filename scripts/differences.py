"""Write docs/differences.md and its Korean page from src/pellucid/nn/differences.md.

python scripts/differences.py            write the pages
python scripts/differences.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from generated import write
from korean import korean_block
from pellucid import nn
from pellucid.nn.differences import page

DOCS = Path(__file__).resolve().parents[1] / "docs"
CALLED = {
    name for place in (nn, nn.functional) for name in dir(place) if callable(getattr(place, name))
}
NAMES = {*CALLED, "torch", "Pellucid", "inplace", "max_norm", "sparse", "device", "float16"}
"""Names that are not translated."""


def pages() -> dict[Path, str]:
    """Return the text of both pages."""
    english = page()
    return {
        DOCS / "differences.md": english,
        DOCS / "differences.ko.md": korean_block(english, NAMES) + "\n",
    }


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them; return the exit code."""
    return write(pages(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
