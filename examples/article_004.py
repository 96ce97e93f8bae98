# %% [markdown]
# # Article 004: multi-head attention by maths and code
#
# The article's own class test, then what it suggests to try: another number of heads, several
# feed-forward networks before and after attention, and a translation task.
# From "Transformers, 수학과 코딩으로 이해하기", with thanks to its author.

# %%
"""Article 004: its class test, valid_lens, other head counts, networks around attention."""

import numpy as np

from lesson import Lesson, final_loss, stored_runs
from pellucid import nn, ops

lesson = Lesson(__doc__)
draws = np.random.default_rng(0)

# %% [markdown]
# ## The class test
# 100 hidden units, 5 heads, batch 2, 4 queries, 6 keys, valid lengths 3 and 2. The article expects
# an output of shape (2, 4, 100).

# %%
valid_lens = np.array([3, 2])
mask = nn.valid_lens_mask(valid_lens, 6)
print(nn.explain_mask(4, 6, valid_lens=valid_lens))


def article_test(draw):
    """Run the article's test with weights and inputs from `draw(shape)`; return out, weights."""
    attention = nn.MultiheadAttention(100, 5, bias=False, batch_first=True, dtype=np.float64)
    for parameter in attention.parameters():
        parameter.data = draw(parameter.shape)
    queries, pairs = draw((2, 4, 100)), draw((2, 6, 100))
    return attention.eval()(queries, pairs, pairs, mask, average_attn_weights=False)


out, weights = article_test(draws.random)
print("\nOutput shape:", out.shape, "(article: (2, 4, 100))")
print("weight on keys beyond valid_lens:", weights[0, ..., 3:].max(), weights[1, ..., 2:].max())

# %% [markdown]
# ## Data with a mean
# The article draws inputs and weights from `rand`, between 0 and 1. Their mean is ½, so q·k has a
# mean that grows with d_k, and √d_k does not take it away: nearly every query takes one key alone.
# With data and weights of mean 0 the weights are spread.

# %%
scale = 0.1  # of a weight: 1 / √100, so that a projection keeps the variance
cases = {
    "rand (the article's)": draws.random,
    "normal, mean 0": lambda shape: draws.standard_normal(shape) * (scale if shape[0] > 2 else 1),
}
for name, draw in cases.items():
    tops = np.array([article_test(draw)[1].max(axis=-1) for _ in range(100)])
    one_hot = (tops > 0.99).mean()
    print(f"largest weight {tops.mean():.2f}, one-hot rows {one_hot:.0%}: {name}")

# %% [markdown]
# ## No valid key
# With a length of 0 every score is −∞, and so is the maximum: the article's code computes
# −∞ − (−∞), which is NaN. Here such a query attends to nothing.

# %%
none = nn.valid_lens_mask(np.array([0, 2]), 6)[:, None]
q, k, v = (draws.standard_normal((2, n, 20)) for n in (4, 6, 6))
out, _ = ops.attention(q, k, v, mask=none)
print("\nvalid_lens 0:", out[0].min(), "to", out[0].max(), "| NaN:", bool(np.isnan(out).any()))

# %% [markdown]
# ## Position-wise feed-forward network
# max(0, x W₁ + b₁) W₂ + b₂, the same at every position: shuffled positions give shuffled results.

# %%
w1, b1, w2, b2 = (draws.standard_normal(shape) for shape in ((32, 16), 32, (16, 32), 16))


def ffn(x):
    """Return the network's output for rows x."""
    hidden, _ = ops.linear(x, w1, b1)
    active, _ = ops.relu(hidden)
    return ops.linear(active, w2, b2)[0]


x, order = draws.standard_normal((6, 16)), draws.permutation(6)
print("position-wise:", np.allclose(ffn(x[order]), ffn(x)[order]))

# %% [markdown]
# ## Other head counts
# The heads share the width, so their number changes no parameter count, only how the width is
# divided. A quarter of the demo's chatbot training each (a training loss: with so little data it is
# memory, so this compares speed of learning, not quality; one run each).

# %%
for heads in (1, 4, 16):
    folder = lesson.train(f"heads-{heads}", f"--model.num-attention-heads={heads}", share=0.25)
    print(f"{heads:>2} heads: loss {final_loss(folder):.3f} nats a token")

# %% [markdown]
# ## Networks before and after attention
# The article's exercise is two flags: `--model.ffn-before` and `--model.ffn-after`. The units are
# divided among the networks, so that all three have about as many parameters.

# %%
for before, after, units in ((0, 1, 512), (1, 1, 256), (0, 2, 256)):
    settings = (f"--model.ffn-before={before}", f"--model.ffn-after={after}")
    folder = lesson.train(
        f"ffn-{before}-{after}", *settings, f"--model.ffn-dim={units}", share=0.25
    )
    print(f"{before} before, {after} after: loss {final_loss(folder):.3f} nats a token")

# %% [markdown]
# ## The same exercise with the runs of the lab
# German to English, a small model, all with the same number of parameters (to 1 %), three random
# seeds each. What they show, and what not, is in docs/findings.md.

# %%
print("\nvariant          runs   validation loss, nats a token")
variants = {}
for run in stored_runs("heads-and-ffns"):
    variants.setdefault(run["change"], []).append(run["metrics"]["best_valid_loss"])
for change, losses in sorted(variants.items(), key=lambda item: min(item[1])):
    print(f"{change:<16} {len(losses):<6} " + " ".join(f"{loss:.3f}" for loss in sorted(losses)))

# %% [markdown]
# ## Machine translation
# The article's last suggestion takes 24 minutes of one core, and Multi30k:
#
#     pellucid train multi30k-de-en-small --model.ffn-before 1 --model.ffn-dim 128
#     pellucid generate runs/multi30k-de-en-small "ein Hund rennt über die Wiese."
#
# The lab compares head counts and networks with several random seeds, on German to English:
# `pellucid lab run heads-and-ffns`.
