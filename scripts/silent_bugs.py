"""Train examples/transformer.py with every mistake of the exercises in its place.

    python scripts/silent_bugs.py            do the missing runs: results/silent_bugs.jsonl
    python scripts/silent_bugs.py --limit 9  at most so many

What does a model with a wrong derivative still learn? Each mistake that `pellucid exercise` knows
is put where the exercise's function belongs (examples/your_transformer.py), and the model is
trained as the file trains itself, with three random seeds. A run takes about 20 seconds of one
core. Stopped at any time, it goes on where it was. At the end it writes the table of
docs/exercises.md: the mistakes of which all seeds are done.
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
"""Trained before all others: the model as it is, and one or two of each exercise."""


def stored() -> list[dict[str, Any]]:
    """Return the runs that are done."""
    if not FILE.exists():
        return []
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def mistakes() -> list[tuple[str, str]]:
    """Return every (exercise, mistake), in the order in which they are trained."""
    every = [(name, mistake) for name in PLACES for mistake in read(name)["mistakes"]]
    return [*FIRST, *(each for each in every if each not in FIRST)]


def run(name: str, mistake: str, seed: int) -> dict[str, Any]:
    """Train with one mistake."""
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


def page(language: Language) -> Path:
    """Return the page with the table."""
    return ROOT / "docs" / f"exercises{'.ko' if language == 'ko' else ''}.md"


def table(language: Language) -> str:
    """Return the table of the mistakes of which all seeds are done, as Markdown."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in stored():
        runs.setdefault((one["exercise"], one["mistake"]), []).append(one)
    head = Text(
        "| exercise | mistake | right of the held-out numbers, by seed | last loss |",
        "| 문제 | 실수 | 학습하지 않은 수 가운데 맞힌 수(시드별) | 마지막 손실 |",
    )
    lines = [head.to(language), "|---|---|---|---|"]
    for (name, mistake), found in sorted(runs.items()):
        if len(found) < len(SEEDS) or "error" in found[0]:
            continue
        says = Text("none", "없음")
        if name:
            says = Text(*read(name)["mistakes"][mistake]["says"])
        right = ", ".join(f"{one['right']:,} / {one['of']:,}" for one in found)
        losses = ", ".join(f"{one['loss']:.4f}" for one in found)
        what = f"`{name}`" if name else "–"
        lines.append(f"| {what} | {says.to(language)} | {right} | {losses} |")
    return "\n".join(lines) + "\n"


def write_tables() -> None:
    """Write the table into both pages."""
    for language in ("en", "ko"):
        path = page(language)
        text = path.read_text(encoding="utf-8")
        before, _, rest = text.partition(START)
        _, _, after = rest.partition(END)
        path.write_text(f"{before}{START}\n{table(language)}{END}{after}", encoding="utf-8")


def main() -> None:
    """Do the runs that are missing."""
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
