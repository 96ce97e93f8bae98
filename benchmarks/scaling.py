"""Goal 5: how the cost grows with the corpus, the vocabulary and the layers.

    PELLUCID_DATA=… python -m benchmarks.scaling corpus [--keep]
    python -m benchmarks.scaling vocabulary layers [--keep]
    python -m benchmarks.scaling plot           draws what was kept last: docs/scaling.png

All on article 003's model; the points of a curve take turns in every round, forwards and backwards.

corpus: microseconds per useful token on the first 10 … 10,000 of Multi30k's pairs, shuffled, after
the first epoch, at two budgets of tokens per batch. A corpus that is smaller than a budget has one
batch an epoch, and that batch is smaller: time a step = a + b · tokens then says what its tokens
must cost. The smaller budget is the whole of the smallest corpus, so that all of them fill it. The
same number of tokens is trained on at every point and in every round. The first epoch is put
together whole, and trained on up to that number.

vocabulary, layers: a step on 64 pairs of 50 tokens. Lines are fitted by relative errors.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.machine import RESULTS, in_turn, machine, quartiles, report
from benchmarks.step import (
    LAYERS,
    V,
    article_config,
    pellucid_step,
    pellucid_trainer,
    random_ids,
)
from benchmarks.useful_tokens import article_task, forever
from threadpoolctl import threadpool_limits

from pellucid.data.batches import Batches, Examples

PLOT = Path(__file__).resolve().parents[1] / "docs" / "scaling.png"
CORPUS = "multi30k-de-en"
SENTENCES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
BUDGET = 4096
VOCABULARIES = (1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 50_000)
STACKS = (1, 2, 3, 4, 5, 6)
ALLOWED = 0.15
"""Largest relative deviation of the time per token from its median."""


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, np.ndarray]:
    """Fit y = a + b x by least squares of relative errors; return a, b and the errors."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    scaled = np.stack([1 / ys, xs / ys], axis=1)
    (a, b), *_ = np.linalg.lstsq(scaled, np.ones(len(ys)), rcond=None)
    return float(a), float(b), (a + b * xs) / ys - 1


def rounds_of(calls: Sequence[Callable[[], float]], rounds: int) -> np.ndarray:
    """Return the results of calls, (calls, rounds); every other round goes backwards."""
    found = np.empty((len(calls), rounds))
    for turn in range(rounds):
        for i in range(len(calls))[:: 1 - 2 * (turn % 2)]:
            found[i, turn] = calls[i]()
    return found


def corpus(rounds: int, tokens: int) -> list[dict[str, Any]]:
    """Measure the time per token on corpora of different sizes."""
    task = article_task(CORPUS)
    order = np.random.default_rng(0).permutation(len(task.examples))
    parts = [task.examples.batch(order[:n]) for n in SENTENCES]
    corpora = [Examples(part.source, part.target, 0) for part in parts]
    budgets = (int(corpora[0].useful_tokens.sum()), BUDGET)
    train = pellucid_trainer(task.config)

    def point(examples: Examples, budget: int) -> tuple[Callable[[], float], float]:
        """Return a function that trains and measures seconds per token, and tokens per batch."""
        batches = Batches(examples, seed=0, batch_tokens=budget)
        first = list(batches.epoch(0))
        done = 0
        for batch in first:
            if done < tokens:
                train(batch)
                done += batch.useful_tokens
        stream = forever(batches, epoch=1)

        def per_token() -> float:
            began, done = time.perf_counter(), 0
            while done < tokens:
                batch = next(stream)
                train(batch)
                done += batch.useful_tokens
            return (time.perf_counter() - began) / done

        return per_token, float(np.mean([batch.useful_tokens for batch in first]))

    points = [point(examples, budget) for budget in budgets for examples in corpora]
    seconds = rounds_of([per_token for per_token, _ in points], rounds)
    rows = []
    for i, budget in enumerate(budgets):
        here = slice(i * len(SENTENCES), (i + 1) * len(SENTENCES))
        medians = np.median(seconds[here], axis=1)
        sizes = np.array([size for _, size in points[here]])
        off = medians / np.median(medians) - 1
        a, b, _ = line(sizes, medians * sizes)
        rows.append(
            {
                "benchmark": "scaling_corpus",
                "corpus": CORPUS,
                "vocabulary": task.config.source_vocab_size,
                "batch_tokens": budget,
                "tokens_a_round": tokens,
                "sentences": list(SENTENCES),
                "tokens_per_batch": [round(size) for size in sizes.tolist()],
                "us_per_token": [quartiles(row * 1e6) for row in seconds[here]],
                "deviation": [round(x, 3) for x in off.tolist()],
                "outside": [n for n, x in zip(SENTENCES, off, strict=True) if abs(x) > ALLOWED],
                "ms_per_step": round(a * 1e3, 2),
                "us_per_further_token": round(b * 1e6, 2),
                "deviation_of_line": [
                    round(x, 3) for x in (medians / (a / sizes + b) - 1).tolist()
                ],
            }
        )
    return rows


def steps(
    name: str, values: Sequence[int], make: Callable[[int], Callable[[], object]], rounds: int
) -> dict[str, Any]:
    """Time a step at each value, and fit a line through the times."""
    calls = [make(value) for value in values]
    in_turn(calls, 2)  # compile, and fill the caches
    timers = [lambda call=call: float(in_turn([call], 1)[0, 0]) for call in calls]
    seconds = rounds_of(timers, rounds) * 1e3
    medians = np.median(seconds, axis=1)
    a, b, errors = line(values, medians.tolist())
    return {
        "benchmark": f"scaling_{name}",
        "values": list(values),
        "ms": [quartiles(row) for row in seconds],
        "ms_fixed": round(a, 2),
        "ms_each": round(b, 6),
        "deviation_of_line": [round(-x, 3) for x in errors.tolist()],
        "times_first": [round(x, 2) for x in (medians / medians[0]).tolist()],
    }


def vocabulary(rounds: int) -> dict[str, Any]:
    """Time a step with vocabularies of different sizes."""

    def make(v: int) -> Callable[[], object]:
        return pellucid_step(
            *random_ids(50, v), article_config(source_vocab_size=v, target_vocab_size=v)
        )

    return {**steps("vocabulary", VOCABULARIES, make, rounds), "layers": LAYERS}


def layers(rounds: int) -> dict[str, Any]:
    """Time a step with different numbers of layers."""
    source, target = random_ids(50)

    def make(n: int) -> Callable[[], object]:
        return pellucid_step(source, target, article_config(encoder_layers=n, decoder_layers=n))

    return {**steps("layers", STACKS, make, rounds), "vocabulary": V}


def plot() -> None:
    """Draw the newest curves in the results."""
    from matplotlib.figure import Figure

    rows = [json.loads(text) for text in RESULTS.read_text(encoding="utf-8").splitlines()]
    curves = [row for row in rows if row["benchmark"] == "scaling_corpus"][-2:]
    last = {row["benchmark"]: row for row in rows}
    blue, orange, ink = "#0072b2", "#d55e00", "#1b2b30"
    figure = Figure(figsize=(12, 4), layout="constrained")
    one, two, three = figure.subplots(1, 3)

    def points(axes: Any, x: Any, spread: Any, colour: str, marker: str, label: str) -> None:
        low, middle, high = np.array(spread).T
        axes.errorbar(
            x, middle, [middle - low, high - middle], color=colour, marker=marker, linestyle="",
            capsize=3, label=label,
        )  # fmt: skip

    styles = ((orange, "s", "--"), (blue, "o", "-"))
    for row, (colour, marker, dashes) in zip(curves, styles, strict=True):
        x, sizes = row["sentences"], np.array(row["tokens_per_batch"])
        name = f"batches of up to {row['batch_tokens']:,} tokens"
        points(one, x, row["us_per_token"], colour, marker, name)
        model = row["us_per_further_token"] + row["ms_per_step"] * 1e3 / sizes
        one.plot(x, model, dashes, color=colour, linewidth=1, label="a / (tokens of a batch) + b")
        middle = float(np.median([us for _, us, _ in row["us_per_token"]]))
        one.axhspan(middle * (1 - ALLOWED), middle * (1 + ALLOWED), color=colour, alpha=0.1)
    one.set(xscale="log", xlabel="sentences in the corpus", ylabel="µs per useful token")
    one.xaxis.set_major_formatter(lambda n, _: f"{n:,.0f}")
    one.set_title("Corpus, ±15 % of the median in colour", loc="left")
    row = last["scaling_vocabulary"]
    points(two, row["values"], row["ms"], blue, "o", "measured")
    x = np.array([0, row["values"][-1]])
    label = f"{row['ms_fixed']:.0f} ms + {row['ms_each'] * 1e3:.1f} ms per 1,000"
    two.plot(x, row["ms_fixed"] + row["ms_each"] * x, "--", color=orange, label=label)
    two.set(xlabel="vocabulary V", ylabel="ms per step")
    two.xaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
    two.set_title("Vocabulary", loc="left")
    row = last["scaling_layers"]
    points(three, row["values"], row["ms"], blue, "o", "measured")
    x = np.array([0, row["values"][-1]])
    label = f"{row['ms_fixed']:.0f} ms + {row['ms_each']:.0f} ms a pair of layers"
    three.plot(x, row["ms_fixed"] + row["ms_each"] * x, "--", color=orange, label=label)
    three.plot(x, row["ms"][0][1] * x, ":", color=ink, label="in proportion to the first")
    three.set(xlabel="layers of encoder and of decoder", ylabel="ms per step")
    three.set_title("Layers", loc="left")
    for axes in (one, two, three):
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    figure.savefig(PLOT, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=["corpus", "vocabulary", "layers", "plot"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=10_000, help="trained on at every point")
    parser.add_argument("--keep", action="store_true", help="append to results/benchmarks.jsonl")
    options = parser.parse_args()
    where = machine()
    with threadpool_limits(2):
        if "corpus" in options.what:
            for row in corpus(options.rounds, options.tokens):
                report({**row, **where}, options.keep)
        if "vocabulary" in options.what:
            report({**vocabulary(options.rounds), **where}, options.keep)
        if "layers" in options.what:
            report({**layers(options.rounds), **where}, options.keep)
    if "plot" in options.what:
        plot()


if __name__ == "__main__":
    main()
