# %% [markdown]
# # Article 003: on the scaling of Transformers
#
# Its experiments in short runs here, then its own table next to the full runs of the lab, and the
# questions that it leaves open. All runs together take about four minutes; `--steps 40` is a
# quick look. From "Transformer의 Scaling에 대한 고찰" (fidabspd.github.io), with thanks.

# %%
"""Article 003: scaling the scores, the tokens and the positions, and its open questions."""

import numpy as np

from lesson import (
    ARTICLE_003,
    EPOCHS_003,
    Lesson,
    draw_trained,
    final_loss,
    prediction_interval,
    scaled_variance,
    stored_runs,
    trained_variances,
    width_and_power,
)
from pellucid import ops
from pellucid.apps.view import attention

lesson = Lesson(__doc__)
draws = np.random.default_rng(0)

# %% [markdown]
# ## Softmax and shifts
# The article's first example adds 1e10 to all scores, and nothing changes: true of real numbers and
# of float64. In float32, torch's default, 1e10 + 1 is 1e10 and the scores become equal. And it is
# softmax that undoes a shift, not dividing; what dividing changes is the *differences* of scores.

# %%
row = np.array([1.0, 2.0, 3.0])
for name, scores in (
    ("x", row),
    ("x + 1e10", row + 1e10),
    ("x + 1e10, float32", (row + 1e10).astype(np.float32)),
    ("(x + 1e10) / 5", (row + 1e10) / 5),
):
    print(f"softmax({name}) = {ops.softmax(scores)[0].round(3)}")

# %% [markdown]
# ## The experiments, in a short run each
# The demo's chatbot (width 128, d_k = 32) instead of the article's, for a quarter of its steps;
# training loss in nats a token. One run each: no general claim, and the order of short runs need
# not be that of long ones. That is what the lab is for.

# %%
unscaled, small = "--model.embedding-scale=1", "--model.position-scale=1/sqrt_d_model"
divide_by_d_k = "--model.attention-scale=d_k"
experiments = {
    "scores / √d_k, tokens × √d_model (the paper)": (),
    "scores / d_k": (divide_by_d_k,),
    "scores / d_k²": ("--model.attention-scale=d_k^2",),
    "scores not scaled": ("--model.attention-scale=none",),
    "tokens not scaled": (unscaled,),
    "positions / √d_model, tokens not scaled": (unscaled, small),
    "positions / √d_model and scores / d_k": (unscaled, small, divide_by_d_k),
}
short = {}
for number, (name, settings) in enumerate(experiments.items()):
    short[name] = final_loss(lesson.train(f"scaling-{number}", *settings, share=0.25))
print()
for name, loss in short.items():
    print(f"{loss:.3f}  {name}")

# %% [markdown]
# ## The article's table next to ours, epoch by epoch
# The lab trained the article's own model on its own data, several random seeds of each variant, for
# 50 epochs (`pellucid lab run article-003` repeats it; a run took 21 to 55 minutes of one core, 27
# in the mean). Nats an answer. Is the article's run one of these? The range of n runs does not say:
# a new run lies outside it with probability 2 / (n + 1), which makes 13 of these 30 figures. The
# interval that holds a new run with probability 95 % does.

# %%
runs = stored_runs("-003")
for variant, figures in ARTICLE_003.items() if runs else ():
    curves = np.array([run["curve"]["train"] for run in runs if run["change"] == variant])
    print(
        f"\n{variant} ({len(curves)} runs)\nepoch  article  ours, least to most  95 % of new runs"
    )
    for epoch, figure in zip(EPOCHS_003, figures, strict=True):
        ours = curves[:, epoch - 1]
        low, high = prediction_interval(ours)
        note = "" if low <= figure <= high else "  article outside"
        span = f"{ours.min():.3f} to {ours.max():.3f}"
        print(f"{epoch:<6} {figure:<8} {span:<20} {low:.3f} to {high:.3f}{note}")

# %% [markdown]
# ## Where do the scores end?
# "There must be an optimal scale that feels mathematically beautiful", the author writes. Here is a
# candidate. √d_k makes the variance of the scores about 1 *before* training; it then grows. Under
# d_k it is tiny before, and 1 *after*. In the smaller model of the study `exponent` p = 0.75 ends
# nearest to 1, and p = 0.75 has the lowest training loss, at every width. A prediction made from it
# failed in three other settings: docs/findings.md.

# %%
over_steps, at_the_end = trained_variances() if runs else ({}, {})
print("\nvariance of the scaled scores, decoder self-attention, least to most of the runs")
for change, (steps, least, most) in over_steps.items():
    ranges = (f"{a:.2g} to {b:.2g}" for a, b in zip(least, most, strict=True))
    print(f"{change:<9}", *(f"step {step}: {one}" for step, one in zip(steps, ranges, strict=True)))
for width, points in at_the_end.items():
    print(f"\n{width}: p, variance at the end, training loss")
    best = min(loss for _, _, loss in points)
    for power, variance, loss in points:
        note = "  lowest" if loss == best else ""
        print(f"{power:<5} {variance:<8.2g} {loss:.3f}{note}")
if runs:
    lesson.show("trained", draw_trained, over_steps, at_the_end, lesson.language)

# %% [markdown]
# ## Are the two scalings additive?
# "I am not sure about their interaction", the author writes of positions / √d_model with / d_k. All
# four cells have run, so it can be computed: what / d_k gains with small positions, minus what it
# gains without. 0 = additive; each random seed gives one number.
#
# On the article's own measure, the training loss of the chatbot, the difference is at most 0.014 of
# a gain of about 0.08: additive, as far as three runs can tell. On unseen answers of the chatbot
# the three differences are −0.098, −0.003 and 0.020: they do not tell. On German to English, in
# both runs, / d_k helps without small positions and hurts with them.

# %%


def interaction(about, runs, metric):
    """Print the gains of / d_k with and without small positions, and their difference."""
    cells = {}
    for run in runs:
        cells.setdefault(run["change"], {})[run["seed"]] = run["metrics"][metric]
    names = ("positions_and_d_k", "positions", "d_k", "sqrt_d_k")
    if not all(name in cells for name in names):
        return
    shared = sorted(set.intersection(*(set(cells[name]) for name in names)))
    both, positions, d_k, base = (np.array([cells[n][s] for s in shared]) for n in names)
    with_small, without = both - positions, d_k - base
    contrast = with_small - without
    print(f"\n{about}: {metric}, {len(shared)} random seed(s)")
    print("  / d_k without small positions:", without.round(3))
    print("  / d_k with small positions:   ", with_small.round(3))
    print("  difference (0 = additive):    ", contrast.round(3))


interaction("chatbot, by heart", runs, "train_loss")
interaction("chatbot, held out", stored_runs("scaling-held-out"), "best_valid_loss")
interaction("German to English", stored_runs("scaling-multi30k"), "best_valid_loss")

# %% [markdown]
# ## Does QKᵀ become smaller still?
# "With both, the whole QKᵀ becomes smaller still, and perhaps that helps", the author guesses. The
# stored runs of the article's own model say: it does at the start, since small positions make the
# inputs short, and no longer at the end. Learning grows the scores to the same size.

# %%
print("\nq·k and the scaled scores, decoder self-attention: variances, least to most of the runs")
for change in ("sqrt_d_k", "d_k", "positions", "positions_and_d_k") if runs else ():
    chosen = [run for run in runs if run["change"] == change]
    width, power = width_and_power(change)
    for moment, probe in (("start", 0), ("end", -1)):
        scaled = np.sort([scaled_variance(run, probe) for run in chosen])
        raw = scaled * width ** (2 * power)
        line = f"q·k {raw[0]:.4g} to {raw[-1]:.4g}; scaled {scaled[0]:.2g} to {scaled[-1]:.2g}"
        print(f"{change:<18} {moment:<6} {line}")

# %% [markdown]
# ## Do large inputs hurt?
# "Inputs of a large scale do not usually help a model converge": the reason why the author hoped
# for positions / √d_model. Two variants of the study `embedding-init` differ in nothing but that
# size, and say yes with each of three seeds: tables N(0, 1), PyTorch's default, learn worst. But
# tokens × √d_model, which are larger than both tables at 0.02, learn best of the three: size is not
# all. Runs differ, too: the tables at 0.02 end between 3.8 and 8.7. All this is after 15 epochs.

# %%
print("\ntraining loss, nats an answer: a column for each seed")
tables = {
    "both_0.02": "both tables N(0, 0.02²)",
    "both_1": "both tables N(0, 1)",
    "scaled_xavier": "Xavier, tokens × √d_model",
}
table_runs = stored_runs("embedding-init")
for change, name in tables.items() if table_runs else ():
    losses = [run["metrics"]["train_loss"] for run in table_runs if run["change"] == change]
    print("".join(f"{loss:7.2f}" for loss in losses), name)

# %% [markdown]
# ## The best factors
# "There must be an optimal scale", the article says twice. A sweep of the factor of the tokens
# (√d_model = 11.3) and of the positions, with a quarter of the steps. With Adam, a table behind a
# factor of 16 also moves 16 times as fast, so this is not the initial size alone.

# %%
tokens, positions = (1.0, 4.0, 11.3), (1.0, 0.3, 0.09)
grid = np.array(
    [
        [
            final_loss(
                lesson.train(
                    f"factors-{t}-{p}",
                    f"--model.embedding-scale={t}",
                    f"--model.position-scale={p}",
                    share=0.25,
                )
            )
            for p in positions
        ]
        for t in tokens
    ]
)
print("\ntokens ×   " + "".join(f"positions × {p:<8}" for p in positions))
for factor, line in zip(tokens, grid, strict=True):
    print(f"{factor:<10} " + "".join(f"{loss:<20.3f}" for loss in line))

# %% [markdown]
# ## Attention scale × initialisation
# "The effect will depend on how weights are initialised", the article suspects. Xavier over the
# packed q, k, v matrix draws them smaller than Xavier over each, so q·k starts smaller too.

# %%
drawn = {}
for init in ("packed", "separate"):
    for scale in ("sqrt_d_k", "d_k"):
        settings = (f"--model.attention-init={init}", f"--model.attention-scale={scale}")
        folder = lesson.train(f"init-{init}-{scale}", *settings, share=0.25)
        drawn[init, scale] = final_loss(folder)
print()
for (init, scale), loss in drawn.items():
    print(f"{init:<9} {scale:<9} {loss:.3f}")

# %% [markdown]
# ## Is a query as long as √d_k?
# "Personally I think not", the author writes, and is right. Even under N(0, 1) it is only nearly
# so: E‖q‖² = d_k, and the mean of ‖q‖ is a little less than √d_k. Training changes the lengths too.

# %%
random_queries = draws.standard_normal((10_000, 32))
lengths = np.linalg.norm(random_queries, axis=-1)
print(f"\n√d_k = {np.sqrt(32):.2f}; length of N(0, 1) vectors {lengths.mean():.2f}")
record = attention(lesson.chatbot(), "너는 자랑하고 있어").record
for layer in record.maps:
    lengths = np.linalg.norm(layer.q, axis=-1)
    print(f"{layer.name:<34} mean length of a query {lengths.mean():5.1f}")

# %% [markdown]
# ## Does an equal key give the largest score?
# The article takes the product of a vector with itself for the largest. Among unit vectors it is;
# in general a longer key in the same direction gives more, and a trained model need not choose the
# token itself at all.

# %%
q = random_queries[0]
print(f"\nq·q = {q @ q:.1f}, q·(2q) = {q @ (2 * q):.1f}")
for layer in record.maps:
    if layer.kind == "encoder":
        best = (layer.q @ layer.k.swapaxes(1, 2)).argmax(axis=-1)
        share = (best == np.arange(best.shape[-1])).mean()
        print(f"{layer.name:<34} largest score at the token itself: {share:.0%} of queries")
