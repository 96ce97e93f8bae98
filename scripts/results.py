"""Write what was measured into both READMEs.

The tables come from results/results.jsonl, the demo's output from results/demo.txt. Nothing between
`<!-- NAME -->` and `<!-- end NAME -->` is typed by hand.

    python scripts/results.py            writes README.md and README.ko.md
    python scripts/results.py --check    says whether they are up to date, and exits with 1 if not
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
READMES = {"en": ROOT / "README.md", "ko": ROOT / "README.ko.md"}
RESULTS = ROOT / "results" / "results.jsonl"
DEMO = ROOT / "results" / "demo.txt"

# Column heads, and how a value of the results file is written.
COLUMNS: dict[str, dict[str, str]] = {
    "recipe": {"en": "recipe", "ko": "레시피"},
    "parameters": {"en": "parameters", "ko": "매개변수"},
    "minutes": {"en": "training, min", "ko": "학습 시간(분)"},
    "per": {"en": "PER", "ko": "PER"},
    "wer": {"en": "WER", "ko": "WER"},
    "words": {"en": "held-out words", "ko": "평가 단어 수"},
    "machine": {"en": "machine", "ko": "기계"},
}
FORMATS = {"parameters": "{:,}", "minutes": "{:.1f}", "per": "{:.2f} %", "wer": "{:.2f} %"}
FORMATS |= {"words": "{:,}", "recipe": "`{}`"}
PERCENT = {"per", "wer"}


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the measured results, one line of JSON each, in the order they were made."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return a Markdown table of the columns that any of the rows has."""
    shown = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = [
        "| " + " | ".join(COLUMNS[name][language] for name in shown) + " |",
        "|"
        + "|".join("---:" if name in FORMATS and name != "recipe" else "---" for name in shown)
        + "|",
    ]
    for row in rows:
        lines.append("| " + " | ".join(cell(name, row.get(name)) for name in shown) + " |")
    return "\n".join(lines)


def cell(name: str, value: Any) -> str:
    """Write one value; what was not measured stays empty."""
    if value is None:
        return ""
    return FORMATS.get(name, "{}").format(100 * value if name in PERCENT else value)


def render(text: str, language: str) -> str:
    """Return a README with every generated block made anew."""
    blocks = {}
    if rows := read_results():
        blocks["results"] = table(rows, language)
    if DEMO.exists():
        blocks["demo"] = f"```text\n{DEMO.read_text(encoding='utf-8').strip()}\n```"
    for name, block in blocks.items():
        before, rest = text.split(f"<!-- {name} -->\n", 1)
        _, after = rest.split(f"<!-- end {name} -->", 1)
        text = f"{before}<!-- {name} -->\n{block}\n<!-- end {name} -->{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the READMEs, or check them."""
    stale = []
    for language, path in READMES.items():
        before = path.read_text(encoding="utf-8")
        after = render(before, language)
        if before != after:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    print(f"out of date: {', '.join(stale)}" if stale else "up to date")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
