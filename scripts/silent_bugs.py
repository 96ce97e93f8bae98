"""Train examples/transformer.py with every mistake of the exercises in its place.

    python scripts/silent_bugs.py            do the missing runs: results/silent_bugs.jsonl
    python scripts/silent_bugs.py --limit 9  at most so many

What does a model with a wrong derivative still learn? Each mistake that `pellucid exercise` knows
is put where the exercise's function belongs (examples/your_transformer.py), and the model is
trained as the file trains itself, with three random seeds. A run takes about 20 seconds of one
core. Stopped at any time, it goes on where it was. At the end it writes what is made from the runs,
of the mistakes of which all seeds are done: the tables and pictures of docs/museum.md, and
exercises/learnt.toml, from which `pellucid exercise` says what a model with a mistake still learns.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

from pellucid.apps.teach.exercise import read, solution  # noqa: E402
from pellucid.system.language import Language, Text  # noqa: E402
from your_transformer import PLACES, built, trained  # noqa: E402

FILE = ROOT / "results" / "silent_bugs.jsonl"
LEARNT = ROOT / "src" / "pellucid" / "apps" / "teach" / "exercises" / "learnt.toml"
START, END = "<!-- silent bugs -->", "<!-- end silent bugs -->"
SEEDS = (0, 1, 2)
FIRST = (
    ("", ""),
    ("softmax_backward", "row_sum_left_out"),
    ("encoder_layer_backward", "queries_alone"),
    ("encoder_layer_backward", "residual_1"),
    ("layer_norm_backward", "both_sums"),
    ("gelu_backward", "second_term"),
    ("layer_norm_backward", "statistics_constant"),
    ("softmax_backward", "row_missing"),
    ("attention_dq_dk", "transpose_of_da"),
    ("linear_backward", "db_mean"),
    ("cross_entropy_backward", "not_divided"),
    ("scaled_scores", "scale_missing"),
    ("attention_dq_dk", "scale_missing"),
    ("attention_dv", "scaled"),
    ("residual_backward", "residual_missing"),
    ("split_join", "interleaved"),
    ("feed_forward_backward", "relu_missing"),
    ("causal_weights", "mask_missing"),
    ("layer_norm", "unbiased"),
)
"""Trained first: the model without a mistake, and one or two mistakes of each exercise."""


def stored() -> list[dict[str, Any]]:
    """Return the finished runs."""
    if not FILE.exists():
        return []
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def mistakes() -> list[tuple[str, str]]:
    """Return every (exercise, mistake), in the order in which they are trained."""
    every = [(name, mistake) for name in PLACES for mistake in read(name)["mistakes"]]
    return [*FIRST, *(each for each in every if each not in FIRST)]


def run(name: str, mistake: str, seed: int) -> dict[str, Any]:
    """Train with one mistake and one random seed; return its results."""
    change = read(name)["mistakes"][mistake]["change"] if name else {}
    began = process_time()
    try:
        with np.errstate(all="ignore"):
            found = trained(
                built({name: solution(name, change)} if name else {}), seed, lambda line: None
            )
    except (ValueError, TypeError, AttributeError) as error:  # its shapes do not fit
        found = {"error": type(error).__name__}
    return {
        "exercise": name,
        "mistake": mistake,
        "seed": seed,
        **found,
        "seconds": round(process_time() - began),
    }


def page(language: Language, suffix: str = ".md") -> Path:
    """Return the path of the page with the table, or of its picture."""
    return ROOT / "docs" / f"museum{'.ko' if language == 'ko' else ''}{suffix}"


def complete() -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return (exercise, mistake, runs) for mistakes with all seeds.

    Best learners first.
    """
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in stored():
        runs.setdefault((one["exercise"], one["mistake"]), []).append(one)
    found = [(*each, lines) for each, lines in runs.items() if len(lines) == len(SEEDS)]
    return sorted(found, key=lambda each: (each[0] != "", -learnt(each[2])))


def learnt(lines: list[dict[str, Any]]) -> float:
    """Return the mean share of new numbers answered right.

    Below 0 if the run has an error.
    """
    return float(np.mean([one.get("right", -1) / one.get("of", 1) for one in lines]))


def off(one: dict[str, Any]) -> str:
    """Format the error of a run's slope along a random direction."""
    error = abs(one["by_hand"] / one["by_difference"] - 1)
    return f"{error:.0%}".replace("%", " %")


def table(language: Language) -> str:
    """Format the table of the museum as Markdown."""
    head = Text(
        "| exercise | mistake | right of the numbers that it never saw | last loss "
        "| its slope is off by |",
        "| 문제 | 실수 | 처음 보는 수 가운데 맞힌 것 | 마지막 손실 | 기울기의 오차 |",
    )
    stops = Text("stops: its shapes do not fit", "멈춤: 모양이 맞지 않음").to(language)
    lines = [head.to(language), "|---|---|---|---|---|"]
    for name, mistake, found in complete():
        says = Text(*read(name)["mistakes"][mistake]["says"]) if name else Text("none", "없음")
        cells = [f"`{name}`" if name else "–", says.to(language)]
        if "error" in found[0]:
            cells += [stops, "–", "–"]
        else:
            cells.append(", ".join(f"{one['right']:,} / {one['of']:,}" for one in found))
            cells.append(", ".join(f"{one['loss']:.4f}" for one in found))
            cells.append(", ".join(map(off, found)))
        lines.append(f"| {' | '.join(cells)} |")
    trained = [lines for name, _, lines in complete() if name and "error" not in lines[0]]
    nearly = sum(min(one["right"] / one["of"] for one in each) > 0.9 for each in trained)
    none = sum(max(one["right"] / one["of"] for one in each) < 0.01 for each in trained)
    counts = Text(
        f"Of {len(trained)} mistakes that can be trained, {nearly} get more than 90 % right with "
        f"every seed, {none} less than 1 %.",
        f"학습할 수 있는 실수 {len(trained)}가지 가운데 {nearly}가지는 시드와 관계없이 90 % 넘게, "
        f"{none}가지는 1 %도 맞히지 못합니다.",
    )
    return "\n".join([*lines, "", counts.to(language)]) + "\n"


def picture(language: Language) -> str:
    """Draw a row for each mistake and a dot for each seed, as SVG."""
    rows = [each for each in complete() if "error" not in each[2][0]]
    title = Text(
        "Right of the numbers that the model never saw, three random seeds",
        "처음 보는 수 가운데 맞힌 비율, 난수 시드 3개",
    ).to(language)
    height = 62 + 24 * len(rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{title}</title>',
        f'<rect width="800" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" fill="#12414a">{title}</text>',
    ]
    for share in (0, 25, 50, 75, 100):
        x = 400 + 3.7 * share
        lines.append(f'<path d="M{x:g} 36V{height - 22}" stroke="#d5dee0"/>')
        lines.append(
            f'<text x="{x:g}" y="{height - 6}" text-anchor="middle" fill="#12414a">{share} %</text>'
        )
    for i, (name, mistake, found) in enumerate(rows):
        y = 52 + 24 * i
        label = f"{name}: {mistake}" if name else Text("no mistake", "실수 없음").to(language)
        lines.append(f'<text x="385" y="{y + 4}" text-anchor="end" fill="#12414a">{label}</text>')
        for one in found:
            x = 400 + 370 * one["right"] / one["of"]
            lines.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="#d9480f" fill-opacity="0.6"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def learnt_table() -> str:
    """Write the text of exercises/learnt.toml."""
    parts: dict[str, list[str]] = {}
    for name, mistake, found in complete():
        if "error" not in found[0]:
            right = json.dumps([f"{one['right']:,}/{one['of']:,}" for one in found])
            parts.setdefault(name, []).append(f"{mistake or 'none'} = {right}")
    lines = ["# What a Transformer with a mistake still gets right: scripts/silent_bugs.py."]
    for name in sorted(parts):
        lines += ["", *([f"[{name}]"] if name else []), *sorted(parts[name])]
    return "\n".join(lines) + "\n"


def write_tables() -> None:
    """Write the tables, pictures and learnt.toml from the finished runs."""
    LEARNT.write_text(learnt_table(), encoding="utf-8")
    for language in ("en", "ko"):
        path = page(language)
        text = path.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        _, _, after = rest.partition(END)
        path.write_text(f"{before}{START}\n{table(language)}{END}{after}", encoding="utf-8")
        page(language, ".svg").write_text(picture(language), encoding="utf-8")


def main() -> None:
    """Do the missing runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, default=10**6)
    limit = parser.parse_args().limit
    done = {(one["exercise"], one["mistake"], one["seed"]) for one in stored()}
    missing = [(*each, seed) for each in mistakes() for seed in SEEDS if (*each, seed) not in done]
    for each in missing[:limit]:
        line = json.dumps(run(*each))
        with FILE.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)
    write_tables()


if __name__ == "__main__":
    main()
