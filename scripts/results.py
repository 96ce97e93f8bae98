"""Write what was measured into both READMEs.

The tables come from results/results.jsonl and results/benchmarks.jsonl, the demo's output from
results/demo.txt. Nothing between `<!-- NAME -->` and `<!-- end NAME -->` is typed by hand.

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
BENCHMARKS = ROOT / "results" / "benchmarks.jsonl"
DEMO = ROOT / "results" / "demo.txt"

# Column heads, and how a value of the results file is written.
COLUMNS: dict[str, dict[str, str]] = {
    "recipe": {"en": "recipe", "ko": "레시피"},
    "parameters": {"en": "parameters", "ko": "매개변수"},
    "minutes": {"en": "training, min", "ko": "학습 시간(분)"},
    "per": {"en": "PER", "ko": "PER"},
    "wer": {"en": "WER", "ko": "WER"},
    "words": {"en": "held-out words", "ko": "평가 단어 수"},
    "bleu": {"en": "BLEU", "ko": "BLEU"},
    "bleu_lower": {"en": "BLEU, lower-cased", "ko": "BLEU(소문자)"},
    "chrf": {"en": "chrF", "ko": "chrF"},
    "nats": {"en": "training loss, nats per answer", "ko": "학습 손실(답변당 nat)"},
    "machine": {"en": "machine", "ko": "기계"},
}
FORMATS = {"parameters": "{:,}", "minutes": "{:.1f}", "per": "{:.2f} %", "wer": "{:.2f} %"}
FORMATS |= {"words": "{:,}", "recipe": "`{}`", "nats": "{:.3f}"}
FORMATS |= dict.fromkeys(("bleu", "bleu_lower", "chrf"), "{:.1f}")
PERCENT = {"per", "wer"}


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the measured results, one line of JSON each, in the order they were made."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the last measurement of each benchmark; earlier ones stay in the file as history."""
    last = {(row["benchmark"], row.get("length"), row.get("corpus")): row for row in rows}
    return list(last.values())


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


SPEED_HEADS = {
    "en": "| | Pellucid | PyTorch | ratio (quartiles) |",
    "ko": "| | Pellucid | PyTorch | 비율 (사분위수) |",
}
SPEED_NAMES = {
    "train_step": {"en": "training step, length {}, ms", "ko": "학습 한 단계, 길이 {}, ms"},
    "real_data": {"en": "{}, useful tokens/s", "ko": "{}, 유효 토큰/초"},
    "memory": {"en": "training step, length 50, peak MB", "ko": "학습 한 단계, 길이 50, 최대 MB"},
    "attention": {
        "en": "attention over 8,192 tokens, there and back, s",
        "ko": "8,192 토큰 어텐션, 순전파와 역전파, 초",
    },
}


def speed_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return a Markdown table of the benchmarks beside PyTorch; medians, and ratios' quartiles."""
    lines = [SPEED_HEADS[language], "|---|---:|---:|---:|"]

    def add(kind: str, what: Any, ours: float, theirs: float, ratio: Sequence[float]) -> None:
        name = SPEED_NAMES[kind][language].format(what)
        low, middle, high = ratio if len(ratio) == 3 else (ratio[0], ratio[0], ratio[0])
        spread = f"{middle:.2f} ({low:.2f}–{high:.2f})" if len(ratio) == 3 else f"{middle:.2f}"
        lines.append(f"| {name} | {ours:,} | {theirs:,} | {spread} |")

    for row in rows:
        match row["benchmark"]:
            case "train_step":
                times = row["pellucid_ms"][1], row["torch_ms"][1]
                add("train_step", row["length"], *times, row["ratio"])
            case "real_data":
                rates = row["useful_tokens_per_s"]
                medians = rates["pellucid"][1], rates["torch_bucketed"][1]
                add("real_data", row["corpus"], *medians, row["ratio_to_bucketed"])
            case "memory":
                peaks = row["step_peak_mb"]
                add("memory", "", peaks["pellucid"], peaks["torch"], [row["step_ratio"]])
                long = row["attention_8192"]
                times = long["seconds"]["pellucid"][1], long["seconds"]["torch"][1]
                add("attention", "", *times, long["ratio"][1:2])
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
    if rows := read_results(BENCHMARKS):
        blocks["speed"] = speed_table(newest(rows), language)
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
