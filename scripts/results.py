"""Write the measured results into both READMEs and the pages of docs that show them (`PAGES`).

The tables come from results/results.jsonl and results/benchmarks.jsonl, the demo's output from
results/demo.txt and demo.ko.txt (two runs), the lab's tables from results/studies, that of faults
from results/faults.json. Everything between `<!-- NAME -->` and `<!-- end NAME -->` is generated;
do not edit it by hand.

    python scripts/results.py            write the pages
    python scripts/results.py --check    exit with 1 if a page is out of date
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from generated import write
from korean import korean_block
from pellucid.apps.lab import document
from pellucid.apps.lab import results as lab_results
from pellucid.apps.lab.findings import Findings, gather
from pellucid.apps.lab.report import answers
from pellucid.apps.lab.statistics import signed
from pellucid.apps.lab.study_file import load_study
from pellucid.system.language import speaking

ROOT = Path(__file__).resolve().parents[1]
README = ("proof", "demo")
SPEED = ("step", "measured", "bfloat16", "drop-in", "rules", "speed", "shares")
STUDIES = ROOT / "results" / "studies"
FINDINGS = ("curves", *(f"study {path.stem}" for path in sorted(STUDIES.glob("*.jsonl"))))
PAGES = (
    (ROOT / "README.md", "en", README),
    (ROOT / "README.ko.md", "ko", README),
    (ROOT / "docs" / "index.md", "en", ("proof",)),
    (ROOT / "docs" / "index.ko.md", "ko", ("proof",)),
    (ROOT / "docs" / "speed.md", "en", SPEED),
    (ROOT / "docs" / "decoding.md", "en", ("decoding",)),
    (ROOT / "docs" / "quality.md", "en", ("results",)),
    (ROOT / "docs" / "findings.md", "en", FINDINGS),
    (ROOT / "docs" / "robustness.md", "en", ("faults",)),
    (ROOT / "docs" / "speed.ko.md", "ko", SPEED),
    (ROOT / "docs" / "decoding.ko.md", "ko", ("decoding",)),
    (ROOT / "docs" / "quality.ko.md", "ko", ("results",)),
    (ROOT / "docs" / "findings.ko.md", "ko", FINDINGS),
    (ROOT / "docs" / "robustness.ko.md", "ko", ("faults",)),
)
"""(Page, language, names of its generated blocks)."""
RESULTS = ROOT / "results" / "results.jsonl"
BENCHMARKS = ROOT / "results" / "benchmarks.jsonl"
DEMO = {"en": ROOT / "results" / "demo.txt", "ko": ROOT / "results" / "demo.ko.txt"}
FAULTS = ROOT / "results" / "faults.json"

# Column heads, and the format of each column.
COLUMNS: dict[str, dict[str, str]] = {
    "recipe": {"en": "recipe", "ko": "레시피"},
    "parameters": {"en": "parameters", "ko": "파라미터"},
    "minutes": {"en": "training, min", "ko": "학습 시간(분)"},
    "per": {"en": "PER", "ko": "PER"},
    "wer": {"en": "WER", "ko": "WER"},
    "words": {"en": "held-out words", "ko": "평가 단어 수"},
    "test": {"en": "test set", "ko": "평가 자료"},
    "bleu": {"en": "BLEU", "ko": "BLEU"},
    "bleu_lower": {"en": "BLEU, lower-cased", "ko": "BLEU(소문자)"},
    "chrf": {"en": "chrF", "ko": "chrF"},
    "nats": {"en": "training loss, nats per answer", "ko": "학습 손실(답변당 nat)"},
    "machine": {"en": "measured on", "ko": "측정 환경"},
}
KOREAN = {
    "641 pairs, answers never seen": "본 적 없는 답변 641쌍",
    "AMD EPYC (AVX2), two cores": "AMD EPYC(AVX2), 코어 둘",
    "Intel Xeon (AVX-512), two cores": "인텔 제온(AVX-512), 코어 둘",
    "AMD EPYC (AVX2), two cores, shared with other work": (
        "AMD EPYC(AVX2), 코어 둘, 다른 작업과 공유"
    ),
    "AMD EPYC (AVX2), one core, shared with other work": (
        "AMD EPYC(AVX2), 코어 하나, 다른 작업과 공유"
    ),
    "AMD EPYC (AVX-512), two cores": "AMD EPYC(AVX-512), 코어 둘",
    "NVIDIA H100, shared with four other trainings": "NVIDIA H100, 다른 학습 넷과 공유",
    "AMD EPYC (AVX-512), one core, shared with other work": (
        "AMD EPYC(AVX-512), 코어 하나, 다른 작업과 공유"
    ),
    "AMD EPYC (AVX-512), two cores, shared with other work": (
        "AMD EPYC(AVX-512), 코어 둘, 다른 작업과 공유"
    ),
    "AMD EPYC (AVX-512), two cores, shared with other work and at times halted": (
        "AMD EPYC(AVX-512), 코어 둘, 다른 작업과 공유, 가끔 멈춤"
    ),
}
"""Korean of the words in the results file, for the tables."""
FORMATS = {"parameters": "{:,}", "minutes": "{:.1f}", "per": "{:.2f} %", "wer": "{:.2f} %"}
FORMATS |= {"words": "{:,}", "recipe": "`{}`", "nats": "{:.3f}"}
FORMATS |= dict.fromkeys(("bleu", "bleu_lower", "chrf"), "{:.1f}")
PERCENT = {"per", "wer"}


def read_results(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Read measured results, one line of JSON each, in the order of measurement."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


SLOWER, INTEL = "as it is, a slower EPYC", "as it is, an Intel Xeon"
ELSEWHERE = {
    "family 25, model 17": SLOWER,  # Zen 4: its processors multiply at half the rate
    "family 6, model 207": INTEL,  # Emerald Rapids
}
"""Other machines than that of the targets, by a row's description of the processor."""


def setting(row: Mapping[str, Any]) -> str | None:
    """Return the special setting of a measurement, MKL's path or the machine.

    None: usual.
    """
    told: str | None = row.get("mkl")
    return told or ELSEWHERE.get(row.get("generation", ""))


def newest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the last measurement of each benchmark; the file keeps earlier ones too."""
    keys = ("benchmark", "length", "mkl", "corpus", "batch_tokens", "beam", "batch")
    rows = [{**row, "mkl": found} if (found := setting(row)) else row for row in rows]
    last = {(*map(row.get, keys), *row.get("rules", ())): row for row in rows}
    return list(last.values())


def table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format a Markdown table with the columns that any of the rows has."""
    shown = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = [
        "| " + " | ".join(COLUMNS[name][language] for name in shown) + " |",
        "|"
        + "|".join("---:" if name in FORMATS and name != "recipe" else "---" for name in shown)
        + "|",
    ]
    for row in rows:
        cells = [cell(name, row.get(name), language) for name in shown]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


SPEED_HEADS = {
    "en": "| | Pellucid | PyTorch | ratio (quartiles) |",
    "ko": "| | Pellucid | PyTorch | 비율 (사분위수) |",
}
MKL = {
    "as on Intel": {"en": "; MKL as on Intel", "ko": "; MKL 인텔 경로"},
    "as on Intel, AVX2 only": {
        "en": "; MKL as on Intel, AVX2 only",
        "ko": "; MKL 인텔 경로, AVX2까지",
    },
    SLOWER: {"en": "; a slower EPYC", "ko": "; 더 느린 EPYC"},
    INTEL: {"en": "; an Intel Xeon", "ko": "; 인텔 Xeon"},
}
SPEED_NAMES = {
    "train_step": {"en": "training step, length {}, ms", "ko": "학습 스텝 하나, 길이 {}, ms"},
    "real_data": {"en": "{}, useful tokens/s", "ko": "{}, 유효 토큰/초"},
    "memory": {
        "en": "training step, length 50, peak MB",
        "ko": "학습 스텝 하나, 길이 50, 최대 메모리(MB)",
    },
    "attention": {
        "en": "attention over {} tokens, forward and backward, s",
        "ko": "{} 토큰 어텐션, 순전파와 역전파, 초",
    },
}


def where(row: Mapping[str, Any], language: str) -> str:
    """Return a note on a row's machine or MKL path; "" for the usual ones."""
    return MKL[row["mkl"]][language] if "mkl" in row else ""


def speed_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format the comparison with PyTorch: medians, and the quartiles of ratios."""
    lines = [SPEED_HEADS[language], "|---|---:|---:|---:|"]

    def add(kind: str, what: Any, ours: float, theirs: float, ratio: Sequence[float]) -> None:
        name = SPEED_NAMES[kind][language].format(what)
        name += where(row, language)
        spread = quartiles(ratio) if len(ratio) == 3 else f"{ratio[0]:.2f}"
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
                if "step_ratio" in row:
                    peaks = row["step_peak_mb"]
                    add("memory", "", peaks["pellucid"], peaks["torch"], [row["step_ratio"]])
                for length in attention_lengths(row):
                    long = row[f"attention_{length}"]
                    times = long["seconds"]["pellucid"][1], long["seconds"]["torch"][1]
                    add("attention", f"{length:,}", *times, long["ratio"])
    return "\n".join(lines)


STEP_HEADS = {
    "en": (
        *("one training step, ms", "PyTorch as it is", "its fast path", "neither with AVX-512"),
        *("PyTorch as it is, a slower EPYC", "an Intel Xeon"),
    ),
    "ko": (
        *("학습 스텝 하나, ms", "PyTorch 그대로", "PyTorch의 빠른 경로", "양쪽 모두 AVX-512 없이"),
        *("PyTorch 그대로, 더 느린 EPYC", "인텔 Xeon"),
    ),
}
STEP_ROWS = {
    "en": ("Pellucid", "PyTorch", "the machine's bound"),
    "ko": ("Pellucid", "PyTorch", "컴퓨터의 한계"),
}
RATES = ("sgemm_gflops", "own_product_gflops", "torch_product_gflops", "multiply_add_gflops")


def bound_ms(row: Mapping[str, Any]) -> float:
    """Compute the least time of a step's matrix products, at the best measured rate."""
    best = max(row[name] for name in RATES if name in row)
    work = row["utilisation_of_own_product"] * row["own_product_gflops"]
    return float(work * row["pellucid_ms"][1] / best)


TIMES = {"en": "times PyTorch's speed", "ko": "PyTorch의 몇 배 빠른가"}


def step_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format the times of a step: Pellucid, PyTorch, the machine's limit, and the ratio."""
    settings = (None, *MKL)
    steps = {
        (row.get("mkl"), row["length"]): row for row in rows if row["benchmark"] == "train_step"
    }
    lines = [f"| {' | '.join(STEP_HEADS[language])} |", "|---" + "|---:" * len(settings) + "|"]
    values: tuple[Callable[[Mapping[str, Any]], float], ...] = (
        lambda row: row["pellucid_ms"][1],
        lambda row: row["torch_ms"][1],
        bound_ms,
    )
    for name, value in zip(STEP_ROWS[language], values, strict=True):
        pairs = [[value(steps[setting, length]) for length in (50, 12)] for setting in settings]
        cells = [f"{long:,.0f}; {short:,.0f}" for long, short in pairs]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    ratios = [[steps[setting, length]["ratio"][1] for length in (50, 12)] for setting in settings]
    cells = [f"{long:.2f}; {short:.2f}" for long, short in ratios]
    lines.append(f"| {TIMES[language]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def drop_in_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format the comparison of torch's classes with masks, in Pellucid and in PyTorch."""
    lines = [
        "| torch's class, its masks | Pellucid, ms | PyTorch, ms | times PyTorch's speed "
        "| time over no mask's |",
        "|---" + "|---:" * 4 + "|",
    ]
    (row,) = (row for row in rows if row["benchmark"] == "attention, drop-in")
    for name, found in row["drop_in"].items():
        times = (found[f"{who}_ms"][1] for who in ("pellucid", "torch"))
        cells = [name, *(f"{ms:,.0f}" for ms in times), quartiles(found["ratio"])]
        over = found.get("over_no_mask")
        cells.append(quartiles(over) if over else "")
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    return korean_block(table) if language == "ko" else table


def bfloat16_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format the comparison of training in bfloat16 on real data."""
    lines = [
        "| useful tokens a second | Pellucid | in bfloat16 | PyTorch | in bfloat16 "
        "| bfloat16 over float32, ours | times PyTorch's better |",
        "|---" + "|---:" * 6 + "|",
    ]
    names = ["Pellucid", "PyTorch"]
    for row in rows:
        if "bfloat16_ratio_to_float32" not in row:
            continue
        rates = row["useful_tokens_per_s"]
        ways = ("pellucid", "pellucid_bfloat16", "torch_bucketed", "torch_bucketed_bfloat16")
        names.append(row["corpus"] + where(row, language))
        cells = [names[-1], *(f"{rates[way][1]:,.0f}" for way in ways)]
        cells += [quartiles(row[f"bfloat16_ratio_to_{of}"]) for of in ("float32", "bucketed")]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    return korean_block(table, names) if language == "ko" else table


def shares_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format where the time of a step on real data goes, by number of threads."""
    found = [row for row in rows if row["benchmark"] == "shares"]
    columns = [(row, n) for row in found for n in ("1", "2")]
    heads = [f"{row['corpus']}, threads: {n}" for row, n in columns]
    lines = [f"| ms of a step | {' | '.join(heads)} |", "|---" + "|---:" * len(columns) + "|"]
    for kind in found[0]["ms"]["1"]:
        cells = [f"{row['ms'][n][kind]:,.0f}" for row, n in columns]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    cells = [f"{row['utilisation'][n]:.2f}" for row, n in columns]
    lines.append(f"| share of multiply-adds alone | {' | '.join(cells)} |")
    table = "\n".join(lines)
    return korean_block(table) if language == "ko" else table


def rules_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format the comparison of attention rules by length: Pellucid's kernel against others."""
    others = ("reference", "torch", "flex")
    lines = [
        "| tokens | rule | kernel, ms | times the reference op's speed | times PyTorch's speed "
        "| forward: times FlexAttention's speed | peak MB | the reference op's | PyTorch's "
        "| FlexAttention's |",
        "|---:|---" + "|---:" * 8 + "|",
    ]
    found = {k: v for row in rows for k, v in row.get("rules", {}).items()}
    for length, sides_of in sorted(found.items(), key=lambda item: int(item[0])):
        for name, sides in sides_of.items():
            ours = sides["fused"]
            cells = [f"{int(length):,}", name, f"{1e3 * ours['seconds'][1]:,.1f}"]
            for other in others:
                what = "forward_seconds" if other == "flex" else "seconds"
                times = sides[other][what][1] / ours[what][1] if other in sides else None
                cells.append("–" if times is None else f"{times:.2f}")
            peaks = (sides[who]["peak_mb"] if who in sides else None for who in ("fused", *others))
            cells += ["–" if peak is None else f"{peak:,}" for peak in peaks]
            lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    names = {name for sides_of in found.values() for name in sides_of}
    return korean_block(table, names) if language == "ko" else table


def quartiles(found: Sequence[float]) -> str:
    """Format a median with its quartiles."""
    low, middle, high = found
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def attention_lengths(row: Mapping[str, Any]) -> list[int]:
    """Return the sequence lengths in a row of the memory benchmark."""
    names = (name.removeprefix("attention_") for name in row)
    return sorted(int(name) for name in names if name.isdecimal())


Measured = tuple[str, str]
"""The name of a measurement, and its result as text."""


def measured_table(
    rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]], language: str = "en"
) -> str:
    """Format the newest result of every measurement."""
    lines = ["| | measured |", "|---|---:|"]
    lines += [f"| {what} | {found} |" for what, found in measured_of_all(rows, results)]
    table = "\n".join(lines)
    return korean_block(table) if language == "ko" else table


def measured_of_all(
    rows: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]
) -> list[Measured]:
    """Return the measurements in all rows, sorted by the number of their section."""
    found_all = [each for row in rows for each in measured_of(row)]
    for row in results:
        if row["recipe"] == "g2p-demo":
            per = 100 * row["per"]
            found_all.append(("6. the demo's phoneme error rate", f"{per:.1f} %"))
    return sorted(found_all, key=lambda each: each[0].split(".")[0])


def measured_of(row: Mapping[str, Any]) -> list[Measured]:
    """Return the measurements in one row of the benchmarks."""
    mkl = f", MKL {row['mkl']}" if "mkl" in row else ""
    match row["benchmark"]:
        case "train_step":
            length = row["length"]
            what = f"1. a step, length {length}{mkl}: times PyTorch's speed"
            found_all = [median(what, row["ratio"])]
            if length == 50 and not mkl:
                found_all.append(median("3. utilisation, by NumPy's product", [row["utilisation"]]))
                own = row["utilisation_of_own_product"]
                found_all.append(median("3. utilisation, by Pellucid's own product", [own]))
            return found_all
        case "real_data":
            found_all = [
                median(
                    f"2. {row['corpus']}{mkl}: times bucketed PyTorch's", row["ratio_to_bucketed"]
                )
            ]
            if row["corpus"] == "chatbot-ko":
                found_all.append(
                    median(
                        f"2. chatbot-ko{mkl}: times article 003's own loop", row["ratio_to_padded"]
                    )
                )
            return found_all
        case "memory":
            found_all = []
            for length in attention_lengths(row):
                what = f"4. attention over {length:,} tokens{mkl}: times PyTorch's speed"
                found_all.append(median(what, row[f"attention_{length}"]["ratio"]))
                causal = row[f"attention_{length}_causal"]["ratio"]
                found_all.append(median("4. the same with a causal mask", causal))
            if mkl:
                return found_all
            peaks = sorted((int(n), mb) for n, mb in row["attention_peak_mb_by_length"].items())
            (n, first), *_, (most, last) = peaks
            each = (last - first) / (most - n)
            return [
                median("4. PyTorch's peak memory over ours", [row["step_ratio"]]),
                *found_all,
                (f"4. its memory, {n:,} to {most:,} tokens", f"{1024 * each:.1f} MB per 1,024"),
            ]
        case "scaling_corpus":
            outside = ", ".join(f"{n:,}" for n in row["outside"])
            most = max(map(abs, row["deviation"]))
            found = f"{100 * most:.0f} %" + (f" (at {outside} sentences)" if outside else "")
            what = f"5. time per token, batches of ≤ {row['batch_tokens']:,}"
            return [(what, found)]
        case "scaling_vocabulary":
            most = max(map(abs, row["deviation_of_line"]))
            return [("5. a step against a + b·V", f"{100 * most:.1f} %")]
        case "scaling_layers":
            found = row["times_first"][-1]
            what = f"5. a step with {row['values'][-1]} layers over {row['values'][0]}"
            return [(what, f"{found:.2f}")]
        case "start":
            return [
                seconds("7. import beyond NumPy", row["import_s_beyond_numpy"], 2),
                seconds("7. first step ever", row["first_step_s_compiling"]),
                seconds(
                    "7. first step ever, one processor",
                    row["first_step_s_compiling_on_one_processor"],
                ),
                seconds("7. first step afterwards", row["first_step_s_compiled"], 2),
                seconds("7. first answer ever", row["first_answer_s_compiling"]),
                seconds(
                    "7. first answer ever, one processor",
                    row["first_answer_s_compiling_on_one_processor"],
                ),
                seconds("7. first answer afterwards", row["first_answer_s_compiled"], 2),
            ]
    return []


def median(what: str, found: Sequence[float]) -> Measured:
    """Format the median of a measurement, with its quartiles if they are given."""
    spread = f" ({found[0]:.2f}–{found[2]:.2f})" if len(found) == 3 else ""
    return what, f"{found[len(found) // 2]:.2f}{spread}"


def seconds(what: str, found: Sequence[float], digits: int = 1) -> Measured:
    """Format a median of seconds with its quartiles."""
    low, middle, high = (f"{each:.{digits}f}" for each in found)
    return what, f"{middle} s ({low}–{high})"


PEERS = {
    "ctranslate2_float32": "ctranslate2 float32",
    "ctranslate2_int8": "ctranslate2 int8",
    "transformers": "transformers",
}


SAME = "int8 answers equal to float32's: Pellucid, CTranslate2"


def decoding_table(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Format generated tokens per second, compared with other engines."""
    lines = [
        f"| | Pellucid | Pellucid int8 | {' | '.join(PEERS.values())} | {SAME} |",
        "|---|---:|---:" + "|---:" * len(PEERS) + "|---:|",
    ]
    for row in rows:
        if row["benchmark"] == "decoding":
            search = "greedy" if row["beam"] == 1 else f"beam {row['beam']}"
            same = (row["same_answers"][who] for who in ("pellucid_int8", "ctranslate2_int8"))
            cells = [
                f"{search}, batch size {row['batch']}",
                f"{row['tokens_per_s']['pellucid'][1]:,.0f}",
                _rate(row, "pellucid_int8", row["int8_ratio_to_int8"]),
                *(_rate(row, peer, row["ratio_to"][peer]) for peer in PEERS),
                "; ".join(same),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    names = ("Pellucid", "Pellucid int8", *PEERS.values())
    return korean_block(table, names) if language == "ko" else table


def _rate(row: Mapping[str, Any], engine: str, ratio: Sequence[float]) -> str:
    """Format an engine's tokens per second with a ratio."""
    return f"{row['tokens_per_s'][engine][1]:,.0f}: {quartiles(ratio)}"


def answers_to_markdown(findings: Findings, level: str = "##") -> str:
    """Write the first part of a study's report in English: question, verdicts, values.

    level: Markdown of its headings.
    """
    with speaking("en"):
        return document.render("answers.md", **answers(findings) | {"level": level})


def study_text(name: str, language: str) -> str:
    """Write a study for docs/findings.md: its picture, and folded below it state and claims."""
    study = load_study(name)
    lines = lab_results.read_results(STUDIES / f"{name}.jsonl")
    found = gather(study, lines)
    claims = f"### Primary claims\n\n{claims_table(found)}\n\n"
    shown = re.sub(
        r"### Primary comparisons.*?\n\n.*?\n\n(?=#)",
        lambda _: claims,
        answers_to_markdown(found, "###").strip(),
        flags=re.DOTALL,
    )
    report = f"../results/studies/{name}/report.md"
    if language == "en":
        summary, link = "tables and the full report", f"Study `{name}`, [full report]({report})."
    else:
        summary, link = "자세한 표와 보고서", f"연구 `{name}`, [전체 보고서]({report})(영어)."
        shown = korean_block(shown, {*study.changes, *study.plan.metrics})
    folded = f'<details markdown="1" class="study"><summary>{name}: {summary}</summary>'
    picture = f"findings/{name}{'' if language == 'en' else '.ko'}.svg"
    alt = "Differences, seed by seed" if language == "en" else "시드별 차이"
    return f"![{alt}: {name}]({picture})\n\n{folded}\n\n{link}\n\n{shown}\n\n</details>"


def claims_table(found: Findings) -> str:
    """Format a study's primary comparisons: differences, agreement, p."""
    rows = [
        "| claim | contrast | median difference | all differences | same sign | p (Holm) |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for c in found.comparisons:
        if not c.primary:
            continue
        cells = ["–"] * 4
        if c.median is not None:
            alike = sum(d * c.median > 0 for d in c.differences)
            cells[0] = signed(c.median)
            cells[1] = f"{signed(min(c.differences))} … {signed(max(c.differences))}"
            cells[2] = f"{alike}/{len(c.seeds)}"
        if c.holm is not None:
            cells[3] = f"{c.holm:.2g}"
        claim = (c.contrast.claim or "–").replace("|", "\\|")
        rows.append(f"| {claim} | {c.name}, {c.contrast.metric} | {' | '.join(cells)} |")
    return "\n".join(rows)


CURVES = "article-003"
"""The study that repeats article 003's table."""
ARTICLE_003 = {
    "sqrt_d_k": {1: 39.521, 2: 32.778, 3: 28.304, 48: 0.349, 49: 0.339, 50: 0.325},
    "d_k": {1: 39.297, 2: 31.671, 3: 26.675, 48: 0.271, 49: 0.266, 50: 0.263},
    "no_embedding_scale": {1: 41.257, 2: 35.059, 3: 33.479, 48: 6.011, 49: 5.898, 50: 5.811},
    "positions": {1: 40.652, 2: 34.497, 3: 31.683, 48: 0.423, 49: 0.418, 50: 0.425},
    "positions_and_d_k": {1: 40.595, 2: 33.945, 3: 29.974, 48: 0.324, 49: 0.291, 50: 0.304},
}
"""Every training loss that article 003 prints: by variant and epoch, nats per answer."""


def curves_table(language: str) -> str:
    """Format the losses printed in article 003 next to the range of Pellucid's runs."""
    lines = read_results(STUDIES / f"{CURVES}.jsonl")
    epochs = list(next(iter(ARTICLE_003.values())))
    rows = [
        "| variant | runs | " + " | ".join(f"epoch {epoch}" for epoch in epochs) + " |",
        "|---|---:|" + "---:|" * len(epochs),
    ]
    for change, printed in ARTICLE_003.items():
        curves = [
            dict(zip(line["curve"]["epoch"], line["curve"]["train"], strict=True))
            for line in lines
            if line["change"] == change and line["status"] == "done"
        ]
        cells = []
        for epoch, value in printed.items():
            ours = [curve[epoch] for curve in curves]
            cells.append(f"{value:g}: {decimals(min(ours))}–{decimals(max(ours))}")
        rows.append(f"| {change} | {len(curves)} | {' | '.join(cells)} |")
    table = "\n".join(rows)
    return korean_block(table, ARTICLE_003) if language == "ko" else table


def decimals(value: float) -> str:
    """Format a loss with as many digits as its size deserves.

    >>> decimals(39.3914), decimals(0.33405)
    ('39.4', '0.334')
    """
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def faults_table(campaigns: Mapping[str, Any], language: str) -> str:
    """Format the results of benchmarks/faults, a row for each kind of case."""
    rows = ["| campaign | kind | what became of it | failures |", "|---|---|---|---:|"]
    for record in campaigns.values():
        head = f"{record['units']:,} {record['units_are']}"
        for kind, counts in sorted(record["counts"].items()):
            right = {became: n for became, n in counts.items() if not became[:1].isupper()}
            became = "; ".join(f"{became}: {n:,}" for became, n in sorted(right.items()))
            failures = sum(counts.values()) - sum(right.values())
            rows.append(f"| {head} | {kind} | {became} | {failures} |")
            head = ""
    figures = [f"- {figure}" for record in campaigns.values() for figure in record["figures"]]
    slowest = {name: r["slowest_s"] for name, r in campaigns.items() if r["slowest_s"]}
    told = ", ".join(f"{seconds:.1f} s ({name})" for name, seconds in slowest.items())
    figures.append(f"- the longest that one command took, without waiting for a processor: {told}")
    loads = sorted(float(r["load"].split()[0]) for r in campaigns.values())
    machine = next(iter(campaigns.values()))["processor"]
    figures.append(f"- measured on an {machine}, at loads of {loads[0]:.0f} to {loads[-1]:.0f}")
    table = "\n".join([*rows, "", *figures])
    names = {kind for name in ("corpora", "commands") for kind in campaigns[name]["counts"]}
    return korean_block(table, names) if language == "ko" else table


def cell(name: str, value: Any, language: str) -> str:
    """Format one value; "" for one that was not measured."""
    if value is None:
        return ""
    if language == "ko" and isinstance(value, str) and " " in value and name != "recipe":
        value = KOREAN[value]
    return FORMATS.get(name, "{}").format(100 * value if name in PERCENT else value)


PROOF = {
    "en": (
        "- **Correct.** `pellucid check` compares every derivative with a finite difference, every "
        "fused kernel with its op, and compiled generation with the layers, on your machine; "
        "`pellucid check --exact` proves the derivatives of ops ([what is proved, and what is "
        "not]({docs}trust.md)). The tests compare them with PyTorch.",
        "- **Fast.** A training step of pairs of 50 tokens, of 12 tokens, on two cores, compared "
        "with PyTorch {torch}'s: {plain} times as fast on an AMD EPYC with AVX-512 ({fast} where "
        "PyTorch is forced onto its fast path), {without} there without AVX-512, {slower} on a "
        "slower EPYC, {intel} on an Intel Xeon ([the rows]({docs}speed.md)). PyTorch's peak memory "
        "is {memory:.1f} times ours. No laptop and no Mac was measured.",
        "- **Useful.** A model of {parameters:,} parameters learns to pronounce English in "
        "{minutes:.0f} minutes on two cores without AVX-512, beside other work. In {words:,} words "
        "that it never saw, {per:.1f} % of the phonemes are wrong.",
    ),
    "ko": (
        "- **정확합니다.** `pellucid check`가 내 컴퓨터에서 모든 미분을 유한 차분과, 모든 융합 "
        "커널을 해당 연산과, 컴파일한 생성을 레이어의 결과와 비교합니다. `pellucid check "
        "--exact`는 연산의 미분을 증명합니다([증명한 것과 증명하지 않은 것]({docs}trust.md)). "
        "테스트에서는 PyTorch와도 비교합니다.",
        "- **빠릅니다.** 코어 둘에서 50토큰 쌍, 12토큰 쌍의 학습 스텝이 PyTorch {torch}보다 "
        "AVX-512가 있는 AMD EPYC에서 {plain}배 빠르고(PyTorch에 빠른 경로를 강제하면 "
        "{fast}배), 거기서 AVX-512 없이는 {without}배, 더 느린 EPYC에서 {slower}배, 인텔 "
        "Xeon에서 {intel}배 빠릅니다([측정한 행들]({docs}speed.md)). PyTorch가 쓰는 최대 "
        "메모리는 Pellucid의 {memory:.1f}배입니다. 노트북과 맥에서는 측정하지 않았습니다.",
        "- **쓸모가 있습니다.** 파라미터 {parameters:,}개인 모델이 AVX-512가 없고 다른 작업과 "
        "함께 쓰는 코어 두 개로 {minutes:.0f}분 만에 영어 발음을 배웁니다. 한 번도 보지 못한 단어 "
        "{words:,}개에서 틀린 음소는 {per:.1f} %입니다.",
    ),
}
"""The claims in the README's first screen; figures are the newest in the results."""


def proof(
    results: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    language: str,
    docs: str = "docs/",
) -> str:
    """Write the three claims of the first screen; docs: the folder of its links."""
    steps = {
        (row.get("mkl"), row["length"]): row for row in rows if row["benchmark"] == "train_step"
    }
    g2p = next(row for row in results if row["recipe"] == "g2p-en")
    both = {"en": " and ", "ko": "·"}[language]
    figures = {
        **{
            name: both.join(f"{steps[setting, length]['ratio'][1]:.1f}" for length in (50, 12))
            for name, setting in zip(
                ("plain", "fast", "without", "slower", "intel"), (None, *MKL), strict=True
            )
        },
        "docs": docs,
        "torch": ".".join(steps[None, 50]["torch"].split(".")[:2]),
        "memory": next(row["step_ratio"] for row in rows if "step_ratio" in row),
        "minutes": g2p["minutes"],
        "parameters": g2p["parameters"],
        "per": 100 * g2p["per"],
        "words": g2p["words"],
    }
    return "\n".join(line.format(**figures) for line in PROOF[language])


def render(text: str, language: str, names: Sequence[str] = README) -> str:
    """Regenerate the named blocks of a page."""
    measured, benchmarks = read_results(), newest(read_results(BENCHMARKS))
    for name in names:
        match name:
            case "results":
                block = table(measured, language)
            case "step":
                block = step_table(benchmarks, language)
            case "bfloat16":
                block = bfloat16_table(benchmarks, language)
            case "drop-in":
                block = drop_in_table(benchmarks, language)
            case "rules":
                block = rules_table(benchmarks, language)
            case "speed":
                block = speed_table(benchmarks, language)
            case "shares":
                block = shares_table(benchmarks, language)
            case "proof":
                block = proof(measured, benchmarks, language, "docs/" if names == README else "")
            case "measured":
                block = measured_table(benchmarks, measured, language)
            case "decoding":
                block = decoding_table(benchmarks, language)
            case "faults":
                block = faults_table(json.loads(FAULTS.read_bytes()), language)
            case "curves":
                block = curves_table(language)
            case "demo":
                block = f"```text\n{DEMO[language].read_text(encoding='utf-8').strip()}\n```"
            case _:
                block = study_text(name.removeprefix("study "), language)
        before, rest = text.split(f"<!-- {name} -->\n", 1)
        _, after = rest.split(f"<!-- end {name} -->", 1)
        text = f"{before}<!-- {name} -->\n{block}\n<!-- end {name} -->{after}"
    return text


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them; return the exit code."""
    pages = {
        path: render(path.read_text(encoding="utf-8"), language, names)
        for path, language, names in PAGES
    }
    return write(pages, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
