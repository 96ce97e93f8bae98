"""Write what was measured into both READMEs and the pages of docs that show it (`PAGES`).

The tables come from results/results.jsonl and results/benchmarks.jsonl, the demo's output from
results/demo.txt, the lab's answers from results/studies. Nothing between `<!-- NAME -->` and
`<!-- end NAME -->` is typed by hand.

    python scripts/results.py            writes the pages
    python scripts/results.py --check    says whether they are up to date, and exits with 1 if not
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pellucid.lab import results as lab_results
from pellucid.lab.findings import gather
from pellucid.lab.report import answers_to_markdown
from pellucid.lab.study_file import load_study

ROOT = Path(__file__).resolve().parents[1]
README = ("results", "speed", "demo")
PAGES = (
    (ROOT / "README.md", "en", README),
    (ROOT / "README.ko.md", "ko", README),
    (ROOT / "docs" / "speed.md", "en", ("goals",)),
    (ROOT / "docs" / "decoding.md", "en", ("decoding",)),
    (ROOT / "docs" / "quality.md", "en", ("results",)),
    (ROOT / "docs" / "findings.md", "en", ("studies",)),
)
"""Each page, its language, and the blocks that are made for it."""
RESULTS = ROOT / "results" / "results.jsonl"
BENCHMARKS = ROOT / "results" / "benchmarks.jsonl"
DEMO = ROOT / "results" / "demo.txt"
STUDIES = ROOT / "results" / "studies"

# Column heads, and how a value of the results file is written.
COLUMNS: dict[str, dict[str, str]] = {
    "recipe": {"en": "recipe", "ko": "레시피"},
    "parameters": {"en": "parameters", "ko": "매개변수"},
    "minutes": {"en": "training, min", "ko": "학습 시간(분)"},
    "per": {"en": "PER", "ko": "PER"},
    "wer": {"en": "WER", "ko": "WER"},
    "words": {"en": "held-out words", "ko": "평가 단어 수"},
    "test": {"en": "test set", "ko": "평가 자료"},
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
    told_apart = ("benchmark", "length", "mkl", "corpus", "batch_tokens", "beam", "batch")
    last = {tuple(map(row.get, told_apart)): row for row in rows}
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
MKL = {
    "as on Intel": {"en": "; MKL as on Intel", "ko": "; MKL을 인텔에서처럼"},
    "as on Intel, AVX2 only": {
        "en": "; MKL as on Intel, AVX2 only",
        "ko": "; MKL을 인텔에서처럼, AVX2까지만",
    },
}
SPEED_NAMES = {
    "train_step": {"en": "training step, length {}, ms", "ko": "학습 한 단계, 길이 {}, ms"},
    "real_data": {"en": "{}, useful tokens/s", "ko": "{}, 유효 토큰/초"},
    "memory": {
        "en": "training step, length 50, peak MB",
        "ko": "학습 한 단계, 길이 50, 최대 메모리(MB)",
    },
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
        name += MKL[row["mkl"]][language] if "mkl" in row else ""
        low, middle, high = ratio if len(ratio) == 3 else (ratio[0], ratio[0], ratio[0])
        spread = f"{middle:.2f} ({low:.2f}–{high:.2f})" if len(ratio) == 3 else f"{middle:.2f}"
        lines.append(f"| {name} | {ours:,} | {theirs:,} | {spread} |")

    order = list(dict.fromkeys(row["benchmark"] for row in rows))
    for row in sorted(rows, key=lambda row: order.index(row["benchmark"])):
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
                add("attention", "", *times, long["ratio"])
    return "\n".join(lines)


Goal = tuple[str, str, str, bool]
"""What is measured, what it should be, what it is, and whether that is met."""


def goals_table(rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of the newest figure for every goal that was measured."""
    goals = [goal for row in rows for goal in goals_of(row)]
    for row in results:
        if row["recipe"] == "g2p-demo":
            per = 100 * row["per"]
            goals.append(("6. the demo's phoneme error rate", "≤ 12 %", f"{per:.1f} %", per <= 12))
    lines = ["| | asked | measured | |", "|---|---:|---:|---|"]
    lines += [
        f"| {what} | {asked} | {found} | {'met' if met else '**missed**'} |"
        for what, asked, found, met in sorted(goals, key=lambda goal: goal[0].split(".")[0])
    ]
    return "\n".join(lines)


def goals_of(row: Mapping[str, Any]) -> list[Goal]:
    """Return the goals that one row of the benchmarks answers."""
    mkl = f", MKL {row['mkl']}" if "mkl" in row else ""
    match row["benchmark"]:
        case "train_step":
            length, least = row["length"], 2.0 if row["length"] == 50 else 1.6
            said = f"1. a step, length {length}{mkl}: times PyTorch's speed"
            goals = [at_least(said, least, row["ratio"])]
            if length == 50 and not mkl:
                goals.append(
                    at_least("3. utilisation, by NumPy's product", 0.7, [row["utilisation"]])
                )
                own = row["utilisation_of_own_product"]
                goals.append(at_least("3. utilisation, by Pellucid's own product", 0.7, [own]))
            return goals
        case "real_data":
            goals = [
                at_least(
                    f"2. {row['corpus']}{mkl}: times bucketed PyTorch's",
                    2.0,
                    row["ratio_to_bucketed"],
                )
            ]
            if row["corpus"] == "chatbot-ko":
                goals.append(
                    at_least(
                        f"2. chatbot-ko{mkl}: times the seed's own loop",
                        15.0,
                        row["ratio_to_padded"],
                    )
                )
            return goals
        case "memory":
            peaks = sorted((int(n), mb) for n, mb in row["attention_peak_mb_by_length"].items())
            (n, first), *_, (m, before), (most, last) = peaks
            each = (last - first) / (most - n)  # an L×S array would make the last part far steeper
            linear = (last - before) / (most - m) <= 1.25 * each
            return [
                at_least("4. PyTorch's peak memory over ours", 2.0, [row["step_ratio"]]),
                at_least(
                    "4. attention over 8,192 tokens: times PyTorch's speed",
                    1.0,
                    row["attention_8192"]["ratio"],
                ),
                at_least(
                    "4. attention over 8,192 tokens, causal",
                    1.0,
                    row["attention_8192_causal"]["ratio"],
                ),
                (
                    f"4. its memory, {n:,} to {most:,} tokens",
                    "linear",
                    f"{1024 * each:.1f} MB per 1,024",
                    linear,
                ),
            ]
        case "scaling_corpus":
            outside = ", ".join(f"{n:,}" for n in row["outside"])
            most = max(map(abs, row["deviation"]))
            found = f"{100 * most:.0f} %" + (f" (at {outside} sentences)" if outside else "")
            what = f"5. time per token, batches of ≤ {row['batch_tokens']:,}"
            return [(what, "± 15 %", found, not outside)]
        case "scaling_vocabulary":
            most = max(map(abs, row["deviation_of_line"]))
            return [("5. a step against a + b·V", "± 10 %", f"{100 * most:.1f} %", most <= 0.1)]
        case "scaling_layers":
            times = row["values"][-1] / row["values"][0]
            found = row["times_first"][-1]
            what = f"5. a step with {row['values'][-1]} layers over {row['values'][0]}"
            return [(what, f"≤ {times:g}", f"{found:.2f}", found <= times)]
        case "start":
            over, first = row["import_s_beyond_numpy"][1], row["first_step_s_compiling"]
            later = row["first_step_s_compiled"][1]
            return [
                ("7. import beyond NumPy", "≤ 0.15 s", f"{over:.2f} s", over <= 0.15),
                ("7. first step ever", "≤ 10 s", f"{first:.1f} s", first <= 10),
                ("7. first step afterwards", "≤ 1 s", f"{later:.2f} s", later <= 1),
            ]
    return []


def at_least(what: str, least: float, found: Sequence[float]) -> Goal:
    """Return a goal that a median, with or without its quartiles, is to reach."""
    middle = found[len(found) // 2]
    spread = f" ({found[0]:.2f}–{found[2]:.2f})" if len(found) == 3 else ""
    return what, f"≥ {least:g}", f"{middle:.2f}{spread}", middle >= least


PEERS = ("ctranslate2_float32", "ctranslate2_int8", "transformers")


def decoding_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table of answer tokens a second beside other engines, the same weights."""
    heads = [name.replace("_", " ") for name in PEERS]
    lines = [
        f"| | Pellucid | {' | '.join(heads)} |",
        "|---|---:" + "|---:" * len(PEERS) + "|",
    ]
    for row in rows:
        if row["benchmark"] == "decoding":
            way = "greedy" if row["beam"] == 1 else f"beam {row['beam']}"
            cells = [
                f"{way}, batches of {row['batch']}",
                f"{row['tokens_per_s']['pellucid'][1]:,.0f}",
            ]
            for peer in PEERS:
                low, middle, high = row["ratio_to"][peer]
                rate = row["tokens_per_s"][peer][1]
                cells.append(f"{rate:,.0f}: {middle:.2f} ({low:.2f}–{high:.2f})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def studies_text() -> str:
    """Return the answers so far of every study that has runs."""
    parts = []
    for path in sorted(STUDIES.glob("*.jsonl")):
        study = load_study(path.stem)
        link = f"../results/studies/{path.stem}/report.md"
        answers = answers_to_markdown(gather(study, lab_results.read_results(path)), "###")
        parts += [
            f"## {study.plan.question}",
            f"[The whole report]({link}), study `{path.stem}`.",
            answers.strip(),
        ]
    return "\n\n".join(parts)


def cell(name: str, value: Any) -> str:
    """Write one value; what was not measured stays empty."""
    if value is None:
        return ""
    return FORMATS.get(name, "{}").format(100 * value if name in PERCENT else value)


def render(text: str, language: str, names: Sequence[str] = README) -> str:
    """Return a page with the blocks of these names made anew."""
    measured, benchmarks = read_results(), newest(read_results(BENCHMARKS))
    for name in names:
        match name:
            case "results":
                block = table(measured, language)
            case "speed":
                block = speed_table(benchmarks, language)
            case "goals":
                block = goals_table(benchmarks, measured)
            case "decoding":
                block = decoding_table(benchmarks)
            case "studies":
                block = studies_text()
            case "demo":
                block = f"```text\n{DEMO.read_text(encoding='utf-8').strip()}\n```"
        before, rest = text.split(f"<!-- {name} -->\n", 1)
        _, after = rest.split(f"<!-- end {name} -->", 1)
        text = f"{before}<!-- {name} -->\n{block}\n<!-- end {name} -->{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them."""
    stale = []
    for path, language, names in PAGES:
        before = path.read_text(encoding="utf-8")
        after = render(before, language, names)
        if before != after:
            stale.append(path.name)
            if "--check" not in arguments:
                path.write_text(after, encoding="utf-8")
    print(f"out of date: {', '.join(stale)}" if stale else "up to date")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
