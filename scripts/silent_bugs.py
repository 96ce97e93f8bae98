"""Train examples/transformer.py with every mistake of the exercises in its place.

    python scripts/silent_bugs.py            do the missing runs: results/silent_bugs.jsonl
    python scripts/silent_bugs.py --limit 9  at most so many
    python scripts/silent_bugs.py --slopes   the slopes of all, untrained: silent_slopes.json

What does a model with a wrong derivative still learn? Each mistake that `pellucid exercise` knows
is put where the exercise's function belongs (examples/your_transformer.py), and the model is
trained as the file trains itself, with three random seeds: first all mistakes with one seed, then
with the others. A run takes about 20 seconds of one core. What stops the program, or whose first
loss or gradients are not finite, cannot be trained; that is found first, in seconds. Stopped at any
time, it goes on where it was. At the end it writes what is made from the runs: the tables and
pictures of docs/museum.md, and exercises/learnt.toml, from which `pellucid exercise` says what a
model with a mistake still learns.
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

from pellucid.apps.teach.exercise import EXERCISES, read, solution  # noqa: E402
from pellucid.system.language import Language, Text  # noqa: E402
from your_transformer import PLACES, built, cast, relu_backward, slopes, trained  # noqa: E402

FILE = ROOT / "results" / "silent_bugs.jsonl"
SLOPES = ROOT / "results" / "silent_slopes.json"
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
    ("feed_forward_backward", ""),
    ("feed_forward_backward", "relu_missing"),
    ("causal_weights", "mask_missing"),
    ("layer_norm_backward", "gamma_missing"),
    ("attention_dq_dk", "softmax_left_out"),
    ("encoder_layer_backward", "both_residuals"),
    ("residual_backward", "residual_missing"),
    ("residual_backward", "f_missing"),
    ("attention_dq_dk", "scale_missing"),
    ("softmax_backward", "row_added"),
    ("split_join", "reshape_alone"),
    ("cross_entropy_backward", "p_missing"),
    ("causal_weights", "infinity_times_zero"),
    ("causal_weights", "own_key"),
    ("scaled_scores", "multiplied"),
    ("linear_backward", "dw_mean"),
    ("residual_backward", "norm_missing"),
    ("layer_norm", "batch_norm"),
    ("gelu_backward", "first_term"),
    ("encoder_layer_backward", "values_left_out"),
    ("attention_dv", "scaled"),
    ("layer_norm_backward", "std_missing"),
    ("layer_norm", "root_missing"),
    ("softmax_backward", "dp_missing"),
    ("causal_weights", "after_softmax"),
    ("split_join", "interleaved"),
    ("encoder_layer_backward", "keys_left_out"),
    ("attention_dv", "dz_missing"),
    ("relu_backward", ""),
    ("relu_backward", "everything"),
    ("relu_backward", "value_for_slope"),
    ("layer_norm", "unbiased"),
    ("layer_norm_backward", "mean_path"),
    ("layer_norm_backward", "variance_path"),
    ("causal_weights", "zero_scores"),
    ("encoder_layer_backward", "residual_2"),
)
"""Trained first: the model without a mistake, models with ReLU without one, and mistakes of all."""


def stored() -> list[dict[str, Any]]:
    """Return the finished runs."""
    if not FILE.exists():
        return []
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def store(found: dict[str, Any]) -> None:
    """Append a run to the file, and print it."""
    line = json.dumps(found)
    with FILE.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def mistakes() -> list[tuple[str, str]]:
    """Return every (exercise, mistake), in the order in which they are trained."""
    every = [(name, mistake) for name in EXERCISES for mistake in read(name)["mistakes"]]
    return [*FIRST, *(each for each in every if each not in FIRST)]


def model(name: str, mistake: str) -> Any:
    """Return transformer.py with an exercise's solution, or a mistake of it, in its place.

    name: "" leaves the file as it is. mistake: "" is none. ReLU stands where GELU does.
    """
    if not name:
        return built({})
    function = solution(name, read(name)["mistakes"][mistake]["change"] if mistake else {})
    if name in PLACES:
        return built({name: function})
    return built({}, [lambda t: relu_backward(t, cast(function))])


def stops(name: str, mistake: str) -> str:
    """Return why a mistake cannot be trained, as the kind of error, or "nan"; "" if it can."""
    try:
        with np.errstate(all="ignore"):
            t = model(name, mistake)
            p = t.initial(np.random.default_rng(0))
            loss, g = t.loss_and_gradients(p, *t.batch([456_788, 73]))
    except (ValueError, TypeError, AttributeError) as error:  # its shapes do not fit
        return type(error).__name__
    gradients = t.arrays(g)
    if [each.shape for each in gradients] != [each.shape for each in t.arrays(p)]:
        return "ValueError"
    return "" if all(np.isfinite(each).all() for each in (loss, *gradients)) else "nan"


def run(name: str, mistake: str, seed: int) -> dict[str, Any]:
    """Train with one mistake and one random seed; return its results.

    A loss that is not finite is None.
    """
    began = process_time()
    with np.errstate(all="ignore"):
        found = trained(model(name, mistake), seed, lambda line: None)
    if not np.isfinite(found["loss"]):
        found["loss"] = None
    at = {"exercise": name, "mistake": mistake, "seed": seed}
    return {**at, **found, "seconds": round(process_time() - began)}


def errors_of_slope(t: Any) -> list[float]:
    """Return the relative error of a new model's slope by hand, for each random seed."""
    errors = []
    for seed in SEEDS:
        with np.errstate(all="ignore"):
            by_hand, by_difference = map(float, slopes(t, seed))
        errors.append(abs(by_hand / by_difference - 1))
    return errors


def write_slopes() -> None:
    """Write the errors of the slopes of all mistakes that can be trained."""
    stopped = {(one["exercise"], one["mistake"]) for one in stored() if "error" in one}
    found: dict[str, dict[str, list[float]]] = {}
    for name, mistake in mistakes():
        if mistake and (name, mistake) not in stopped:
            errors = errors_of_slope(model(name, mistake))
            found.setdefault(name, {})[mistake] = [float(f"{error:.2g}") for error in errors]
    SLOPES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def page(language: Language, suffix: str = ".md") -> Path:
    """Return the path of the page with the table, or of its picture."""
    return ROOT / "docs" / f"museum{'.ko' if language == 'ko' else ''}{suffix}"


def tried() -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return (exercise, mistake, runs) for what was tried.

    The model without a mistake is first, then the best learners.
    """
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in stored():
        runs.setdefault((one["exercise"], one["mistake"]), []).append(one)
    found = [(*each, lines) for each, lines in runs.items()]
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


def loss(one: dict[str, Any]) -> str:
    """Format a run's last loss."""
    return "∞" if one["loss"] is None else f"{one['loss']:.4f}"


def table(language: Language) -> str:
    """Format the table of the museum as Markdown."""
    head = Text(
        "| exercise | mistake | right of the numbers that it never saw | last loss "
        "| its slope is off by |",
        "| 문제 | 실수 | 처음 보는 수 가운데 맞힌 것 | 마지막 손실 | 기울기의 오차 |",
    )
    shapes = Text("stops: its shapes do not fit", "멈춤: 모양이 맞지 않음")
    infinite = Text("stops: its first step is not finite", "멈춤: 첫 스텝이 유한하지 않음")
    right = Text("none", "없음"), Text("none (ReLU in place of GELU)", "없음(GELU 자리에 ReLU)")
    lines = [head.to(language), "|---|---|---|---|---|"]
    for name, mistake, found in tried():
        says = Text(*read(name)["mistakes"][mistake]["says"]) if mistake else right[name != ""]
        cells = [f"`{name}`" if name else "–", says.to(language)]
        if "error" in found[0]:
            stop = infinite if found[0]["error"] == "nan" else shapes
            cells += [stop.to(language), "–", "–"]
        else:
            cells.append(", ".join(f"{one['right']:,} / {one['of']:,}" for one in found))
            cells.append(", ".join(map(loss, found)))
            cells.append(", ".join(map(off, found)))
        lines.append(f"| {' | '.join(cells)} |")
    wrong = [lines for _, mistake, lines in tried() if mistake]
    able = [lines for lines in wrong if "error" not in lines[0]]
    whole = sum(len(lines) == len(SEEDS) for lines in able)
    nearly = sum(min(one["right"] / one["of"] for one in each) > 0.9 for each in able)
    none_right = sum(max(one["right"] / one["of"] for one in each) < 0.01 for each in able)
    named = sum(mistake != "" for _, mistake in mistakes())
    counts = Text(
        f"Of {named} named mistakes {len(wrong)} were tried, and {len(able)} of them trained, "
        f"{whole} with all three random seeds. "
        f"Of these {len(able)}, {nearly} get more than 90 % right with every seed, {none_right} "
        "less than 1 %.",
        f"이름이 있는 실수 {named}가지 가운데 {len(wrong)}가지를 넣어 보았고, 그 가운데 "
        f"{len(able)}가지를 학습했습니다. {whole}가지는 난수 시드 3개로 모두 "
        f"학습했습니다. 학습한 {len(able)}가지 가운데 {nearly}가지는 시드와 관계없이 90 % 넘게, "
        f"{none_right}가지는 1 %도 맞히지 못합니다.",
    )
    return "\n".join([*lines, "", counts.to(language)]) + "\n"


def picture(language: Language) -> str:
    """Draw a row for each mistake and a dot for each seed, as SVG."""
    rows = [each for each in tried() if "error" not in each[2][0]]
    title = Text(
        "Right of the numbers that the model never saw, a dot for each random seed",
        "처음 보는 수 가운데 맞힌 비율, 난수 시드마다 점 하나",
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
        label = f"{name}: {mistake}"
        if not mistake:
            label = Text("no mistake", "실수 없음").to(language) + (f", {name}" if name else "")
        lines.append(f'<text x="385" y="{y + 4}" text-anchor="end" fill="#12414a">{label}</text>')
        for one in found:
            x = 400 + 370 * one["right"] / one["of"]
            lines.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="#d9480f" fill-opacity="0.6"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def learnt_table() -> str:
    """Write the text of exercises/learnt.toml."""
    parts: dict[str, list[str]] = {}
    for name, mistake, found in tried():
        if "error" not in found[0] and (mistake or not name):
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
    parser.add_argument("--slopes", action="store_true")
    given = parser.parse_args()
    if given.slopes:
        write_slopes()
        return
    runs = stored()
    done = {(one["exercise"], one["mistake"], one.get("seed")) for one in runs}
    stopped = {(one["exercise"], one["mistake"]) for one in runs if "error" in one}
    seen = {(one["exercise"], one["mistake"]) for one in runs}
    for name, mistake in mistakes():
        if (name, mistake) not in seen and (error := stops(name, mistake)):
            store({"exercise": name, "mistake": mistake, "error": error})
            stopped.add((name, mistake))
    missing = [
        (*each, seed)
        for seed in SEEDS
        for each in mistakes()
        if each not in stopped and (*each, seed) not in done
    ]
    for each in missing[: given.limit]:
        store(run(*each))
    write_tables()


if __name__ == "__main__":
    main()
