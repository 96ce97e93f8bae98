"""Write docs/differences.md from the table in `pellucid.nn.differences`."""

from pathlib import Path

from pellucid.nn.differences import markdown

if __name__ == "__main__":
    page = Path(__file__).parents[1] / "docs" / "differences.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(markdown(), encoding="utf-8")
