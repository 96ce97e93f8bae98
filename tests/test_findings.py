"""The probes' figures in docs/findings.md are those of the stored results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import findings_pictures
import lesson
from pellucid.apps.lab.statistics import signed

ROOT = Path(__file__).parents[1]
STEP, D_K = 300, 32
COUNTS = ["none", "one", "two", "three", "four", "five", "six", "seven"]
UPPER = ("decoder.layers.1.self_attn", "decoder.layers.2.self_attn")


@pytest.fixture
def page() -> str:
    """The text of the page, on one line."""
    return " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())


def stored(study: str) -> list[dict[str, Any]]:
    """Return the runs of a study."""
    lines = (ROOT / "results" / "studies" / f"{study}.jsonl").read_text(encoding="utf-8")
    return [run for run in map(json.loads, lines.splitlines()) if run["status"] == "done"]


def spread(values: Iterable[float], digits: int) -> str:
    """Return the range of some values as the page writes it."""
    found = list(values)
    least, most = f"{min(found):.{digits}f}", f"{max(found):.{digits}f}"
    return least if least == most else f"{least} to {most}"


def variances(
    runs: Sequence[dict[str, Any]], change: str, probe: int, seen: str = "score_variance"
) -> list[float]:
    """Return the variance of the scaled scores at a probe, of every run of a variant."""
    return [lesson.scaled_variance(r, probe, seen) for r in runs if r["change"] == change]


def jacobians(change: str) -> dict[int, float]:
    """Return softmax's Jacobian in the decoder's upper self-attention by seed, median of heads."""
    found = {}
    for run in stored("article-003"):
        if run["change"] == change:
            (probe,) = [probe for probe in run["probes"] if probe["step"] == STEP]
            heads = [size for name in UPPER for size in probe["attention"][name]["jacobian"]]
            found[run["seed"]] = median(heads)
    return found


def test_the_gradient_that_gets_through_is_smaller_under_d_k(page: str) -> None:
    root, plain = jacobians("sqrt_d_k"), jacobians("d_k")
    ratios = [(root[seed] / math.sqrt(D_K)) / (plain[seed] / D_K) for seed in plain]
    assert len(root) == len(plain) == 5
    assert (
        "larger under / d_k in all five seeds "
        f"({spread(plain.values(), 2)}, compared with {spread(root.values(), 2)}), but queries and "
        f"keys receive it times the scale, and that product is {spread(ratios, 1)} times smaller"
    ) in page


def test_the_variance_of_the_scaled_scores_before_and_after_training(page: str) -> None:
    runs = stored("article-003")
    root, plain, both = (
        [variances(runs, change, probe) for probe in (0, -1)]
        for change in ("sqrt_d_k", "d_k", "positions_and_d_k")
    )
    assert (
        f"scores / √d_k have a variance of {spread(root[0], 2)} at the start and "
        f"{spread(root[1], 2)} at the end; scores / d_k {spread(plain[0], 3)} and "
        f"{spread(plain[1], 2)}."
    ) in page
    assert (
        f"at the start ({spread(both[0], 3)}, compared with {spread(plain[0], 3)}), and no longer "
        f"at the end ({spread(both[1], 2)}, compared with {spread(plain[1], 2)})"
    ) in page
    rows = [variances(runs, change, -1, "row_variance") for change in ("sqrt_d_k", "d_k")]
    assert (
        f"ends at {spread(rows[0], 2)} under / √d_k, and at {spread(rows[1], 2)} under / d_k"
    ) in page
    steps = [probe["step"] for probe in runs[0]["probes"]]
    at_3000 = spread(variances(runs, "d_k", steps.index(3000)), 2)
    assert f"Under / d_k the variance was {at_3000} at step 3000" in page
    assert f"had {at_3000} after as many steps" in page
    seeds = {run["seed"] for run in runs if run["change"] == "d_k^2"}
    same = sorted((r for r in runs if r["seed"] in seeds), key=lambda r: r["seed"])
    start, end = (
        [high / low for high, low in zip(*falls, strict=True)]
        for falls in (
            [variances(same, change, probe) for change in ("sqrt_d_k", "d_k^2")]
            for probe in (0, -1)
        )
    )
    assert (
        f"falls about {round(median(start), -3):,.0f} times (32³), the final one "
        f"{min(end):.0f} to {max(end):.0f} times" in page
    )


def test_the_exponent_that_learns_best_ends_with_a_variance_of_one(page: str) -> None:
    _, at_the_end = lesson.trained_variances()
    assert len(at_the_end) == 3
    for points in at_the_end.values():
        nearest = min(points, key=lambda point: abs(math.log(point[1])))
        assert nearest[0] == min(points, key=lambda point: point[2])[0] == 0.75
    runs = stored("exponent")
    ends = [one for d in (16, 32, 64) for one in variances(runs, f"d{d}_p0.75", -1)]
    assert f"at each head width ({spread(ends, 2)})" in page


def test_the_rule_that_the_variance_ends_near_one_failed_its_test(page: str) -> None:
    runs = stored("score-variance")
    starts: list[float] = []
    for setting, about, predicted in (
        ("packed", "q, k and v drawn as one matrix", 0.75),
        ("long", "three times the epochs", 1.0),
        ("wide", "width 256", 1.0),
    ):
        losses: dict[float, dict[int, float]] = {}
        variance: dict[float, dict[int, tuple[float, float]]] = {}
        for run in runs:
            if run["change"].startswith(f"{setting}_"):
                _, p = lesson.width_and_power(run["change"])
                losses.setdefault(p, {})[run["seed"]] = run["metrics"]["train_loss"]
                ends = lesson.scaled_variance(run, 0), lesson.scaled_variance(run, -1)
                variance.setdefault(p, {})[run["seed"]] = ends
        assert sorted(losses) == [0.5, 0.75, 1.0, 1.25]
        seeds = sorted(set.intersection(*map(set, losses.values())))
        at_end = {p: median(of[seed][1] for seed in seeds) for p, of in variance.items()}
        assert min(at_end, key=lambda p: abs(math.log(at_end[p]))) == predicted
        best = min(losses, key=lambda p: median(losses[p][seed] for seed in seeds))
        assert best != predicted
        first = sum(min(losses, key=lambda p: losses[p][seed]) == best for seed in seeds)
        gains = [losses[predicted][seed] - losses[best][seed] for seed in seeds]
        at_start = [variance[best][seed][0] for seed in seeds]
        cells = (
            about,
            f"{predicted:g}",
            spread([variance[predicted][seed][1] for seed in seeds], 2),
            f"{best:g} ({first} of {len(seeds)})",
            spread(gains, 3),
            spread(at_start, 3),
        )
        assert f"| {' | '.join(cells)} |" in page
        starts += at_start
    widths = [one for d in (16, 32, 64) for one in variances(stored("exponent"), f"d{d}_p0.75", 0)]
    assert f"the best p has a variance of {spread([*starts, *widths], 2)} before training" in page
    root = [one / 32**0.5 for one in variances(stored("article-003"), "sqrt_d_k", 0)]
    assert f"p = 0.75, which would ({spread(root, 2)}), was not tried" in page


def test_heads_that_learn_their_scale_end_elsewhere(page: str) -> None:
    found = {}
    for width in (16, 32, 64):
        found[width] = [
            median(
                variance * scale**2
                for name, layer in run["probes"][-1]["attention"].items()
                if name.startswith("decoder") and name.endswith("self_attn")
                for variance, scale in zip(layer["score_variance"], layer["scale"], strict=True)
            )
            for run in stored("exponent")
            if run["change"] == f"d{width}_learned"
        ]
    first, second, third = (spread(values, 2) for values in found.values())
    assert f"ends at a variance of {first}, {second} and {third} (widths 16, 32, 64)" in page


def test_the_articles_figures_against_ranges_and_prediction_intervals(page: str) -> None:
    outside, expected, missed = 0, 0.0, []
    for variant, figures in lesson.ARTICLE_003.items():
        runs = [r["curve"]["train"] for r in stored("article-003") if r["change"] == variant]
        for epoch, figure in zip(lesson.EPOCHS_003, figures, strict=True):
            ours = lesson.np.array([run[epoch - 1] for run in runs])
            outside += not ours.min() <= figure <= ours.max()
            expected += 2 / (len(ours) + 1)
            low, high = lesson.prediction_interval(ours)
            if not low <= figure <= high:
                missed.append(f"{figure} in epoch {epoch} ({low:.3f} to {high:.3f})")
    assert (outside, expected) == (13, pytest.approx(13))
    assert f"{outside} of its 30 printed figures lie outside" in page
    assert len(missed) == 2
    assert missed[0] in page
    assert "0.425 at the end (0.348 to 0.412;" in page
    assert missed[1].endswith("(0.348 to 0.412)")


@pytest.mark.parametrize("ending", ["", ".ko"])
@pytest.mark.parametrize("name", sorted(p.stem for p in findings_pictures.STUDIES.glob("*.jsonl")))
def test_the_picture_of_an_answer_shows_its_claims(name: str, ending: str) -> None:
    picture = (findings_pictures.FOLDER / f"{name}{ending}.svg").read_text(encoding="utf-8")
    found = findings_pictures.found(name)
    first = found.study.plan.primary[0].metric
    claims = [c for c in found.comparisons if c.primary and c.seeds and c.contrast.metric == first]
    assert claims
    for claim in claims if name != "exponent" else ():  # whose picture has losses
        assert claim.median is not None
        assert f"★ {claim.name}" in picture, "run: python scripts/findings_pictures.py"
        assert signed(claim.median) in picture, "run: python scripts/findings_pictures.py"


def differences(study: str, change: str, base: str, metric: str, pairs: int = 7) -> list[float]:
    """Return by how much a change moves a metric, in each of its pairs."""
    # the first runs of one study were stored under the variant's old name
    own = {"seed_sized": "article_sized"}
    by = {
        (own.get(r["change"], r["change"]), r["seed"]): r["metrics"][metric] for r in stored(study)
    }
    seeds = sorted(seed for name, seed in by if name == base)
    assert len(seeds) == pairs
    return [by[change, seed] - by[base, seed] for seed in seeds]


def evenness(study: str, changes: Sequence[str]) -> list[float]:
    """Return the entropy of cross-attention over the greatest possible, from step 10 on."""
    return [
        share
        for run in stored(study)
        if run["change"] in changes
        for probe in run["probes"]
        if probe["step"] >= 10
        for name, seen in probe["attention"].items()
        if name.endswith("multihead_attn")
        for share in seen["evenness"]
    ]


def test_cross_attention_in_the_chatbot_sees_all_tokens_alike(page: str) -> None:
    scales = ("sqrt_d_k", "d_k")
    assert min(evenness("article-003", scales)) > 0.995
    assert min(evenness("scaling-held-out", scales)) > 0.992
    assert min(evenness("exponent", [f"d{d}_p{p}" for d in (16, 32, 64) for p in (0.5, 1)])) > 0.9
    assert (
        "its entropy is at least 99.5 % of the maximum (at least 99.2 % in the study of unseen "
        "answers; in the smaller model of `exponent` at least 90 % at the end)"
    ) in page


def test_scales_that_heads_learn_are_no_better_on_unseen_answers(page: str) -> None:
    loss = {(r["change"], r["seed"]): r["metrics"] for r in stored("exponent")}
    pairs = {
        metric: [
            loss[f"d{d}_learned", seed][metric] - loss[f"d{d}_p0.75", seed][metric]
            for d in (16, 32, 64)
            for seed in range(5)
        ]
        for metric in ("train_loss", "best_valid_loss")
    }
    lower = [x < 0 for x in pairs["train_loss"]]
    assert (sum(lower[:10]), sum(lower[10:])) == (10, 2)
    assert "p = 0.75 in ten of ten pairs at widths 16 and 32, and in two of five at 64" in page
    higher = [x for x in pairs["best_valid_loss"] if x > 0]
    assert (
        f"higher than that of p = 0.75 in {len(higher)} of 15 pairs, by at most {max(higher):.3f} "
        "nats per token"
    ) in page


def test_d_k_on_german_to_english(page: str) -> None:
    section = page[page.index("on German to English?", page.index("## ")) :]
    lower = differences("scaling-multi30k", "d_k", "sqrt_d_k", "best_valid_loss")
    assert max(lower) < 0
    assert f"/ d_k is lower by {spread([-x for x in lower], 3)} nats" in section
    bleu = differences("scaling-multi30k", "d_k", "sqrt_d_k", "bleu")
    higher, fallen = [x for x in bleu if x > 0], [-x for x in bleu if x < 0]
    counts = [COUNTS[len(found)] for found in (higher, fallen)]
    assert (
        f"higher in {counts[0]} pairs (by {spread(higher, 1)}) and lower in {counts[1]} "
        f"(by {spread(fallen, 1)})"
    ) in section
    runs = stored("scaling-multi30k")
    square, places, both = (
        [r["metrics"]["bleu"] for r in runs if r["change"] == change]
        for change in ("d_k^2", "positions", "positions_and_d_k")
    )
    assert f"BLEU {spread(square, 1)} and {spread(both, 1)}." in section
    assert f"have {spread(places, 1)}." in section
    lost = differences("scaling-multi30k", "positions", "positions_and_d_k", "bleu", pairs=2)
    assert f"/ d_k with positions / √d_model costs {spread(lost, 1)} BLEU (two pairs)" in page


def test_cross_attention_chooses_on_german_to_english(page: str) -> None:
    ends = [(run["change"], run["probes"][-1]) for run in stored("scaling-multi30k")]
    inside = [
        100 * p["memory"]["within"] / (p["memory"]["within"] + p["memory"]["between"])
        for _, p in ends
        if "memory" in p
    ]

    def even(*changes: str) -> str:
        found = [
            100 * share
            for change, probe in ends
            if change in changes
            for name, seen in probe["attention"].items()
            if name.endswith("multihead_attn")
            for share in seen["evenness"]
        ]
        return spread(found, 0)

    assert (
        f"at the end {spread(inside, 0)} % of it lies within sentences, in all {len(inside)} runs "
        "where it was measured"
    ) in page
    assert (
        f"its heads end at {even('sqrt_d_k', 'd_k')} % of the maximal entropy, under / d_k² at "
        f"{even('d_k^2')} %"
    ) in page


def test_many_heads_and_several_networks_are_worse(page: str) -> None:
    study, loss = "heads-and-ffns", "best_valid_loss"
    section = page[page.index("how many heads, how many networks, and where?") :]
    runs = stored(study)
    few = [r["metrics"][loss] for r in runs if r["change"] in ("base", "heads_1", "heads_2")]
    assert spread(few, 3) in section
    for changes in (
        ["heads_8"], ["heads_16"], ["before1_after1"], ["before0_after2"],
        ["before1_after2", "before2_after1"], ["before2_after2"],
    ):  # fmt: skip
        found = [x for one in changes for x in differences(study, one, "base", loss, pairs=3)]
        assert min(found) > 0
        assert spread(found, 3) in section
    one_head = differences(study, "heads_1", "base", loss, pairs=3)
    assert spread(one_head, 3).replace("-", "−") in section
    bleu = differences(study, "heads_1", "base", "bleu", pairs=3)
    assert f"BLEU is, by {spread([-x for x in bleu], 1)}" in section


def test_more_dropout_makes_the_small_chatbot_better(page: str) -> None:
    section = page[page.index("which small model answers best?", page.index("## ")) :]
    for change, sign in (("dropout_0.4", -1), ("article_sized", -1), ("no_smoothing", 1)):
        for loss in ("best_valid_loss", "test_loss"):
            found = differences("chatbot-recipe", change, "base", loss, pairs=3)
            assert min(sign * x for x in found) > 0
            if (change, loss) != ("no_smoothing", "best_valid_loss"):
                assert spread([abs(x) for x in found], 3) in section
    slow = differences("chatbot-recipe", "slow", "base", "test_loss", pairs=3)
    assert spread(slow, 3) in section
    for loss in ("best_valid_loss", "test_loss"):
        larger = differences("chatbot-recipe", "article_sized", "dropout_0.4", loss, pairs=3)
        assert sum(x < 0 for x in larger) == 1
        narrow = differences("chatbot-recipe", "narrow", "base", loss, pairs=3)
        assert {x < 0 for x in narrow} == {True, False}


def test_norms_after_the_sum_with_a_warm_up_are_best(page: str) -> None:
    study, loss = "norm-place", "best_valid_loss"
    contrasts = [("pre", "post"), ("post_cold", "post"), ("pre_cold", "pre")]
    for change, base in contrasts:
        found = differences(study, change, base, loss)
        assert min(found) > 0
        assert spread(found, 3) in page
    last = sum(x > 0 for x in differences(study, "post_cold", "pre_cold", loss))
    assert last == 6
    assert "comes last in six pairs" in page
    assert max(differences(study, "post_cold", "post", "bleu")) < 0
    assert {x < 0 for x in differences(study, "pre", "post", "bleu")} == {True, False}


def test_the_newer_parts_translate_better_after_as_many_steps(page: str) -> None:
    study = "modern-parts-multi30k"
    gate = differences(study, "swiglu", "article", "best_valid_loss")
    both = differences(study, "together", "article", "best_valid_loss")
    over_gate = differences(study, "together", "swiglu", "best_valid_loss")
    for found in (gate, both, over_gate):
        assert max(found) < 0
        assert spread([-x for x in found], 3) in page
    bleu = differences(study, "together", "article", "bleu_lower")
    assert f"raise BLEU by {spread(bleu, 1)} (lower-cased" in page
    assert sum(x > 0 for x in differences(study, "swiglu", "article", "bleu_lower")) == 6
    assert "BLEU is higher in six of them" in page


def test_tables_n_0_1_learn_worst_and_small_tokens_behind_the_factor_best(page: str) -> None:
    study, loss = "embedding-init", "train_loss"
    section = page[page.index("what is the embedding scale √d_model for?") :]
    losses: dict[str, list[float]] = {}
    for run in stored(study):
        losses.setdefault(run["change"], []).append(run["metrics"][loss])
    assert {name: len(found) for name, found in losses.items() if len(found) != 3} == {
        "tokens_as_positions": 1
    }
    unscaled, scaled = losses["unscaled_xavier"], losses["scaled_xavier"]
    large, small = losses["tokens_large"], losses["scaled_small"]
    assert f"({spread(large, 1)} nats per answer; {spread(unscaled, 1)} otherwise)" in section
    assert f"({spread(small, 2)}; {spread(scaled, 2)} otherwise)" in section
    assert f"same reason ({spread(losses['positions_small'], 2)})" in section
    assert max(small) < min(
        x for name, runs in losses.items() if name != "scaled_small" for x in runs
    )
    worst, narrow = losses["both_1"], losses["both_0.02"]
    assert min(worst) > max(x for name, runs in losses.items() if name != "both_1" for x in runs)
    assert f"higher than in any run of another variant ({spread(worst, 1)})" in section
    lower = differences(study, "both_0.02", "unscaled_xavier", loss, pairs=3)
    assert max(lower) < 0
    assert (
        f"lower than with Xavier's tables in each pair (by {spread([-x for x in lower], 1)}), "
        f"and the runs differ much ({spread(narrow, 1)})"
    ) in section


def test_the_best_factor_of_the_tokens_depends_on_the_positions(page: str) -> None:
    section = page[page.index("which factor of the token vectors is best?", page.index("## ")) :]
    found: dict[tuple[str, int], dict[int, float]] = {}
    for run in stored("embedding-factor"):
        kind, factor = run["change"].split("_")
        found.setdefault((kind, int(factor)), {})[run["seed"]] = run["metrics"]["train_loss"]
    for kind, name in (("learned", "learned positions"), ("sinusoidal", "the paper's sinusoids")):
        cells = [spread(found[kind, factor].values(), 2) for factor in (1, 4, 16, 64)]
        assert f"| {name} | {' | '.join(cells)} |" in section
        differences = [x - found[kind, 16][seed] for seed, x in found[kind, 64].items()]
        assert {x > 0 for x in differences} == {kind == "learned"}
    short = [("learned", 1), ("sinusoidal", 1), ("sinusoidal", 4), ("sinusoidal", 16)]
    least = min(x for one in short for x in found[one].values())
    most = max(x for one, runs in found.items() if one not in short for x in runs.values())
    assert f"the loss is {least:.1f} and more, above it {most:.1f} and less" in section
    assert min(found, key=lambda one: min(found[one].values())) == ("learned", 16)
