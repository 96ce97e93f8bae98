# %% [markdown]
# # Article 000: attention, LayerNorm and GELU by hand
#
# Forward and backward of every part, each compared with finite differences; then the article's
# pictures. From "Python으로 Transformer 바닥부터 구현하기[1]", with thanks to its author.
# More on any part: `pellucid explain attention` (or `layer_norm`, `gelu`, `softmax`, …).

# %%
"""Article 000: attention, multi-head attention, LayerNorm and GELU, forward and backward."""

import numpy as np

import transformer
from lesson import Lesson, scaled_variance, stored_runs
from pellucid import nn, ops
from pellucid.apps.teach import pictures
from pellucid.apps.view import attention

lesson = Lesson(__doc__)
draws = np.random.default_rng(0)


def difference(f, x, direction, dout, h=1e-5):
    """Return the central difference of sum(dout * f(x)) along a direction."""
    return float((dout * (f(x + h * direction) - f(x - h * direction))).sum() / (2 * h))


def compare(name, gradient, f, x, dout):
    """Print a derivative along a random direction, by hand and by differences."""
    direction = draws.standard_normal(x.shape)
    by_hand, numeric = float((gradient * direction).sum()), difference(f, x, direction, dout)
    print(f"{name:<16} by hand {by_hand:+.9f}   differences {numeric:+.9f}")
    assert np.isclose(by_hand, numeric, rtol=1e-5, atol=1e-8)


# %% [markdown]
# ## Scaled dot-product attention
# `softmax(Q Kᵀ / √d_k) V`. Gradients of all three inputs. The article writes ∂W/∂A = W(1 − W) and
# says itself that the real calculation is another: the last lines show how far the two are apart.

# %%
q, k, v = (draws.standard_normal((2, n, 8)) for n in (5, 7, 7))
out, saved = ops.attention(q, k, v)
dout = draws.standard_normal(out.shape)
dq, dk, dv = ops.attention_backward(dout, saved)
compare("attention dQ", dq, lambda x: ops.attention(x, k, v)[0], q, dout)
compare("attention dK", dk, lambda x: ops.attention(q, x, v)[0], k, dout)
compare("attention dV", dv, lambda x: ops.attention(q, k, x)[0], v, dout)

w, softmax_saved = ops.softmax(q @ k.swapaxes(1, 2) / np.sqrt(8))
dw = dout @ v.swapaxes(1, 2)
da = ops.softmax_backward(dw, softmax_saved)
apart = np.linalg.norm(dw * w * (1 - w) - da) / np.linalg.norm(da)
print(f"W(1 - W) in place of softmax's derivative is {apart:.0%} off (7 keys, dW at random)")

# %% [markdown]
# That dW was drawn at random, with mean 0. In a model the entries of a row of dW have a part in
# common: all values push the loss the same way. Softmax ignores it, since its weights sum to 1
# anyway; W(1 − W) does not. So it is worse than random numbers say. First the same dW with a common
# part, then the six attentions of examples/transformer.py, in its first steps of training.

# %%
for common in (0, 1, 3):
    guess = (dw + common) * w * (1 - w)
    same = np.allclose(ops.softmax_backward(dw + common, softmax_saved), da)
    apart = np.linalg.norm(guess - da) / np.linalg.norm(da)
    print(f"dW + {common}: dA is the same: {same}, W(1 - W) is {apart:.0%} off")


def in_a_model(seed, steps=20):
    """Return how far off W(1 - W) is in each attention of a model, in every step of training.

    And how far off it would be, if the common part of each row of dW were taken out first.
    """
    found, plain = [], transformer.softmax

    def watched(a):
        w, backward = plain(a)

        def watched_backward(dw):
            da = backward(dw)
            common = (dw * w).sum(axis=-1, keepdims=True)
            guesses = dw * w * (1 - w), (dw - common) * w * (1 - w)
            found.append([np.linalg.norm(each - da) / np.linalg.norm(da) for each in guesses])
            return da

        return w, watched_backward

    transformer.softmax = watched
    random = np.random.default_rng(seed)
    p = transformer.initial(random)
    m, v = ([np.zeros_like(w) for w in transformer.arrays(p)] for _ in range(2))
    for step in range(1, steps + 1):
        _, g = transformer.loss_and_gradients(p, *transformer.batch(random.integers(1, 10**6, 32)))
        transformer.adam(p, g, m, v, step, 2e-5 * step)
    transformer.softmax = plain
    return np.array(found)


for seed in (0, 1):
    apart, without = in_a_model(seed).T
    print(
        f"in a model, seed {seed}: W(1 - W) is {apart.min():.0%} to {apart.max():.0%} off, "
        f"without the common part {without.min():.0%} to {without.max():.0%}"
    )

# %% [markdown]
# ## Multi-head attention
# Self-attention: the three gradients add up to the gradient of the one input, as the article says.

# %%
mha = nn.MultiheadAttention(16, 4, batch_first=True, dtype=np.float64)
x = draws.standard_normal((2, 5, 16))
(y, weights), backward = mha.forward(x, x, x)
dy = draws.standard_normal(y.shape)
compare("multi-head dx", sum(backward(dy)), lambda x: mha(x, x, x)[0], x, dy)
print("weights", weights.shape, "= (batch, queries, keys), the mean of the heads")

# %% [markdown]
# Care for the shapes, says the article. Splitting into heads is a reshape of the *features* and a
# transpose; every head keeps all five positions.

# %%
split = x @ mha.in_proj_weight.data[:16].T  # the first 16 rows of in_proj_weight are W_Q
steps = [x, split, split.reshape(2, 5, 4, 4), split.reshape(2, 5, 4, 4).swapaxes(1, 2)]
for name, step in zip(("x", "Q = x W_Qᵀ", "reshape", "transpose"), steps, strict=True):
    print(f"{name:<12}", step.shape)
together = steps[-1].swapaxes(1, 2).reshape(2, 5, 16)
print("transposed back and joined = Q:", bool((together == split).all()))

# %% [markdown]
# ## Why normalise, and over what
# Batches differ in their distribution, says the article, and every layer passes that on: its input
# is the output of the one before, which training changes too. Six layers of weights and ReLU read
# rows, then the same three times as large. A norm gives every layer inputs of one size. (The
# weights have He's size, which keeps the variance under ReLU: so nothing here fades by itself.)

# %%
own = np.random.default_rng(1)
matrices, row = own.standard_normal((6, 64, 64)) * np.sqrt(2 / 64), own.standard_normal((5, 64))
for name, norm in (("no norm", lambda x: x), ("layer norm", lambda x: ops.layer_norm(x)[0])):
    for size in (1, 3):
        x, spread = size * row, []
        for matrix in matrices:
            x = norm(np.maximum(x @ matrix, 0))
            spread.append(f"{x.std():.2f}")
        print(f"{name:<10} input × {size}: standard deviation by layer", *spread)

# %% [markdown]
# The article names three norms. They differ in the numbers that share a mean and a variance. Of an
# array (N, L, E), three sentences of five tokens: batch norm takes one feature of *all* tokens, so
# the output of a sentence depends on its neighbours and on padding. Group norm, as its paper and
# torch have it, takes a group of features of *one* sentence at all of its positions: the neighbours
# do not matter, the padding does. (With a single group it is still not a Transformer's layer norm,
# which takes every token by itself.) Layer norm depends on neither.

# %%


def unit(x, axes):
    """Return x with mean 0 and variance 1 over some axes."""
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


norms = {
    "batch norm": (lambda x: unit(x, (0, 1)), "over N and L, one mean for each feature"),
    "layer norm": (lambda x: unit(x, 2), "over E, one for each token"),
    "group norm": (
        lambda x: unit(x.reshape(*x.shape[:2], 4, 4), (1, 3)).reshape(x.shape),
        "over L and a quarter of E, four for each sentence",
    ),
}


def moved(norm, seed):
    """Return how much a sentence changes among larger ones, and with seven tokens of padding."""
    batch = np.random.default_rng(seed).standard_normal((3, 5, 16)) * [[[1.0]], [[3.0]], [[1.0]]]
    alone, padding = norm(batch[:1]), np.zeros((1, 7, 16))
    others = norm(batch)[:1], norm(np.concatenate([batch[:1], padding], axis=1))[:, :5]
    return [np.linalg.norm(other - alone) / np.linalg.norm(alone) for other in others]


print()
for name, (norm, axes) in norms.items():
    among, padded = zip(*(moved(norm, seed) for seed in (0, 1)), strict=True)
    print(f"{name}, {axes}: a sentence moves by {among[0]:.0%}, {among[1]:.0%} among others,")
    print(f"    by {padded[0]:.0%}, {padded[1]:.0%} with padding (seeds 0 and 1)")

# %% [markdown]
# ## LayerNorm
# With ε = 0, which the article assumes, a constant row divides 0 by 0.

# %%
x, gain, offset = draws.standard_normal((3, 16)), draws.standard_normal(16), np.ones(16)
y, saved = ops.layer_norm(x, gain, offset)
dy = draws.standard_normal(y.shape)
dx, dgain, doffset = ops.layer_norm_backward(dy, saved)
compare("layer_norm dx", dx, lambda x: ops.layer_norm(x, gain, offset)[0], x, dy)
compare("layer_norm dγ", dgain, lambda g: ops.layer_norm(x, g, offset)[0], gain, dy)
compare("layer_norm dβ", doffset, lambda b: ops.layer_norm(x, gain, b)[0], offset, dy)
with np.errstate(all="ignore"):
    print("constant row, ε = 0:    ", ops.layer_norm(np.full(3, 2.0), eps=0.0)[0])
print("constant row, ε = 1e-5: ", ops.layer_norm(np.full(3, 2.0))[0])

# %% [markdown]
# ## GELU
# The tanh form that the article implements, its derivative, and its distance from the exact one.

# %%
x = draws.standard_normal((3, 16))
y, saved = ops.gelu(x, "tanh")
dy = draws.standard_normal(y.shape)
compare("gelu (tanh) dx", ops.gelu_backward(dy, saved), lambda x: ops.gelu(x, "tanh")[0], x, dy)
grid = np.linspace(-6, 6, 100_001)
print(f"tanh form: at most {np.abs(ops.gelu(grid)[0] - ops.gelu(grid, 'tanh')[0]).max():.1e} off")
print("minimum of GELU: x = {:.4f}, y = {:.4f}".format(*pictures.gelu_minimum()))
lesson.show("activations", pictures.activations)

# %% [markdown]
# "Why must it be GELU in language? Because the Gaussian is continuous?", the article asks. SiLU,
# x · sigmoid(x), is as smooth. If smoothness were it, SiLU would beat ReLU too. The lab trained a
# small translation model with each:

# %%
curves = stored_runs("activations")
print("\nactivation   validation loss, nats a token, by random seed")
for change in ("relu", "leaky_relu", "silu", "gelu") if curves else ():
    losses = sorted(r["metrics"]["best_valid_loss"] for r in curves if r["change"] == change)
    print(f"{change:<12} " + " ".join(f"{loss:.3f}" for loss in losses))

# %% [markdown]
# ## Why the scores are scaled
# The article draws one query over 10 keys: without the scale one weight is 1.0, with it 0.4 and
# the others show. Its query was random; the mean over 2,000 queries says what to expect.

# %%
print("\nlargest of 10 weights, d_k = 64   article, one query   mean of 2,000")
for name, article, power in (("softmax(q·k)", 1.0, 0.0), ("softmax(q·k / √d_k)", 0.4, 0.5)):
    print(f"{name:<33} {article:<20} {pictures.top_weight(64, 10, power):.2f}")
lesson.show("softmax", pictures.softmax)

# %% [markdown]
# Var[q·k] = d_k for entries of mean 0 and variance 1. The mean weight is one over the number of
# keys, whatever d_k is.

# %%
print("\nd_k    Var[q·k]   Var[q·k / √d_k]")
for d_k in (8, 32, 128, 512):
    products = pictures.scores(d_k, 8)
    print(f"{d_k:<6} {products.var():<10.1f} {products.var() / d_k:.3f}")
print("\nkeys   largest weight under √d_k (d_k = 64)   mean weight")
for keys in (2, 8, 32, 128):
    print(f"{keys:<6} {pictures.top_weight(64, keys, 0.5):<38.2f} {1 / keys:.3f}")
lesson.show("variance", pictures.variance)

# %% [markdown]
# ## And after training?
# "Mean 0, variance 1, independent" describes random vectors. A trained model aligns queries with
# the keys that they need, so Var[q·k] is no longer d_k, and √d_k no longer makes it 1. Scores of
# a larger variance mean sharper attention. How sharp depends on the scale to the end: learning
# makes up for a part of it only.

# %%
record = attention(lesson.chatbot(), "너는 자랑하고 있어").record
print("\ntrained chatbot, d_k = 32: Var[q·k] of each layer, mean of the heads")
for layer in record.maps:
    products = layer.q @ layer.k.swapaxes(1, 2)
    print(f"{layer.name:<34} {products.var(axis=(1, 2)).mean():8.1f}")

# The same question to article 003's chatbot, from the stored results of the lab: the variance of
# the scaled scores in the decoder's self-attention, by random seed from least to most.
runs = stored_runs("-003")
print("\narticle 003's model   variance at step 0   at step 9250       loss at the end")
for change in ("unscaled", "sqrt_d_k", "d_k", "d_k^2") if runs else ():
    chosen = [run for run in runs if run["change"] == change]
    first, last = ([scaled_variance(run, probe) for run in chosen] for probe in (0, -1))
    loss = np.median([run["metrics"]["train_loss"] for run in chosen])
    ends = f"{min(last):.3g} to {max(last):.3g}"
    print(f"{change:<21} {min(first):.2g} to {max(first):<12.2g} {ends:<18} {loss:.3f}")
